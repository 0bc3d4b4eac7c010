//! Adapter of rusty-sidekiq for the conformance suite: `adapter driver` or `adapter worker`.

mod driver;
mod jobs;
mod worker;

use sidekiq::{RedisConnectionManager, RedisPool};

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

fn pool() -> RedisPool {
    let manager = RedisConnectionManager::new(variable("JOBWIRE_REDIS_URL")).expect("a URL");
    // If the server cannot be reached, the first push fails after this time.
    let timeout = std::time::Duration::from_secs(3);
    bb8::Pool::builder()
        .connection_timeout(timeout)
        .build_unchecked(manager)
}

#[tokio::main]
async fn main() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    match std::env::args().nth(1).as_deref() {
        Some("driver") => driver::run(pool()).await,
        Some("worker") => worker::run(pool()).await,
        _ => {
            eprintln!("usage: adapter driver|worker");
            std::process::exit(64);
        }
    }
}
