//! Adapter of rusty-sidekiq for the conformance suite: `adapter driver` or `adapter worker`.

mod driver;
mod jobs;
mod worker;

use sidekiq::{RedisConnectionManager, RedisPool};

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}

async fn pool() -> RedisPool {
    let manager = RedisConnectionManager::new(variable("JOBWIRE_REDIS_URL")).expect("a URL");
    bb8::Pool::builder().build(manager).await.expect("a pool")
}

#[tokio::main]
async fn main() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    match std::env::args().nth(1).as_deref() {
        Some("driver") => driver::run(pool().await).await,
        Some("worker") => worker::run(pool().await).await,
        _ => {
            eprintln!("usage: adapter driver|worker");
            std::process::exit(64);
        }
    }
}
