//! The standard jobs and their reports.

use async_trait::async_trait;
use redis::aio::MultiplexedConnection;
use serde_json::{json, Value};
use sidekiq::{Error, RedisPool, Result, Worker};

tokio::task_local! {
    /// Id of the job. Only the middleware knows it, not the job.
    pub static JID: String;
}

#[derive(Clone)]
pub struct Control {
    client: redis::Client,
    connection: MultiplexedConnection,
    run: String,
}

impl Control {
    pub async fn open() -> Self {
        let client = redis::Client::open(crate::variable("JOBWIRE_CONTROL_URL")).expect("a URL");
        let connection = client
            .get_multiplexed_async_connection()
            .await
            .expect("a connection");
        Self {
            client,
            connection,
            run: crate::variable("JOBWIRE_RUN"),
        }
    }

    fn key(&self, name: &str) -> String {
        format!("jw:{}:{name}", self.run)
    }

    async fn report(&self, mut event: Value) {
        event["jid"] = JID.with(|jid| json!(jid));
        let mut connection = self.connection.clone();
        let mut command = redis::cmd("RPUSH");
        command.arg(self.key("ev")).arg(event.to_string());
        command
            .query_async::<()>(&mut connection)
            .await
            .expect("the control Redis");
    }

    async fn begin(&self, args: &Value) {
        self.report(json!({"ev": "begin", "args": args})).await;
    }

    async fn end(&self, ok: bool) {
        self.report(json!({"ev": "end", "ok": ok})).await;
    }
}

fn text(args: &Value) -> String {
    args[0].as_str().unwrap_or_default().to_owned()
}

macro_rules! job {
    ($name:ident, |$self:ident, $args:ident| $body:expr) => {
        #[derive(Clone)]
        pub struct $name {
            pub control: Control,
            pub redis: RedisPool,
        }

        #[async_trait]
        impl Worker<Value> for $name {
            fn disable_argument_coercion(&self) -> bool {
                true
            }

            async fn perform(&self, $args: Value) -> Result<()> {
                let $self = self;
                $self.control.begin(&$args).await;
                let outcome: Result<()> = $body;
                $self.control.end(outcome.is_ok()).await;
                outcome
            }
        }
    };
}

job!(JobwireEcho, |_this, args| Ok(()));
job!(JobwireFail, |_this, args| Err(Error::Message(text(&args))));
job!(JobwireFlaky, |this, args| {
    let mut connection = this.control.connection.clone();
    let mut command = redis::cmd("INCR");
    command.arg(JID.with(|jid| this.control.key(&format!("n:{jid}"))));
    let count: i64 = command
        .query_async(&mut connection)
        .await
        .expect("the control Redis");
    if Some(count) > args[0].as_i64() {
        Ok(())
    } else {
        Err(Error::Message(format!("time {count}")))
    }
});
job!(JobwireGate, |this, args| {
    // A separate connection without a timeout.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let client = &this.control.client;
    let mut connection = client
        .get_multiplexed_async_connection_with_config(&config)
        .await
        .expect("a connection");
    let mut command = redis::cmd("BLPOP");
    command
        .arg(this.control.key(&format!("gate:{}", text(&args))))
        .arg(0);
    command
        .query_async::<redis::Value>(&mut connection)
        .await
        .expect("the control Redis");
    Ok(())
});
job!(JobwireSpawn, |this, args| {
    let job = &args[0];
    let queue = job["queue"].as_str().unwrap_or("default").to_owned();
    let class = job["class"].as_str().unwrap_or_default().to_owned();
    sidekiq::perform_async(&this.redis, class, queue, job["args"].clone()).await
});
