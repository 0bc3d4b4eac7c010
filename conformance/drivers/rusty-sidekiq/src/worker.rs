//! The worker.

use std::sync::Arc;

use async_trait::async_trait;
use sidekiq::{
    BalanceStrategy, ChainIter, Job, Processor, ProcessorConfig, RedisPool, Result,
    ServerMiddleware, WorkerRef,
};

use crate::jobs::{
    Control, JobwireEcho, JobwireFail, JobwireFlaky, JobwireGate, JobwireSpawn, JID,
};

struct RememberJid;

#[async_trait]
impl ServerMiddleware for RememberJid {
    async fn call(
        &self,
        chain: ChainIter,
        job: &Job,
        worker: Arc<WorkerRef>,
        redis: RedisPool,
    ) -> Result<()> {
        JID.scope(job.jid.clone(), chain.next(job, worker, redis))
            .await
    }
}

/// Return the names of the queues, and whether they have weights. The weights cannot be configured.
fn queues() -> (Vec<String>, bool) {
    let mut weighted = false;
    let mut names = Vec::new();
    for queue in crate::variable("JOBWIRE_QUEUES").split(',') {
        match queue.rsplit_once(':') {
            Some((name, weight)) if weight.parse::<u32>().is_ok() => {
                weighted = true;
                names.push(name.to_owned());
            }
            _ => names.push(queue.to_owned()),
        }
    }
    (names, weighted)
}

pub async fn run(redis: RedisPool) {
    let (queues, weighted) = queues();
    let concurrency = crate::variable("JOBWIRE_CONCURRENCY")
        .parse()
        .expect("a number");
    let strategy = if weighted {
        BalanceStrategy::RoundRobin
    } else {
        BalanceStrategy::None
    };
    let config = ProcessorConfig::default()
        .num_workers(concurrency)
        .balance_strategy(strategy);
    let mut processor = Processor::new(redis.clone(), queues).with_config(config);
    let control = Control::open().await;
    macro_rules! register {
        ($($job:ident),*) => {
            $(processor.register($job { control: control.clone(), redis: redis.clone() });)*
        };
    }
    register!(
        JobwireEcho,
        JobwireFail,
        JobwireFlaky,
        JobwireGate,
        JobwireSpawn
    );
    processor.using(RememberJid).await;
    processor.run().await;
}
