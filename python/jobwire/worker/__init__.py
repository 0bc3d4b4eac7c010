"""The worker: takes jobs from queues and runs them.

In boot order: `Launcher` owns all parts; the heartbeat keeps the lease and recovers orphans; a
`Capsule` owns threads of `Processor`, which take jobs from a source and record their outcomes;
`Poller` promotes due jobs.
"""

from jobwire.application.config import CapsuleConfig, WorkerConfig
from jobwire.application.fetcher import Fetcher, FetcherSetup, TakenJob
from jobwire.worker.base.timings import Timings
from jobwire.worker.process.launcher import Launcher

__all__ = [
    "CapsuleConfig",
    "Fetcher",
    "FetcherSetup",
    "Launcher",
    "TakenJob",
    "Timings",
    "WorkerConfig",
]
