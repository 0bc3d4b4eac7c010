"""The worker: takes jobs from queues and runs them.

In boot order: `Launcher` owns everything; `Heart` keeps the lease and recovers orphans; a
`Capsule` owns threads of `Processor`, which take jobs from a `Fetcher` and hand outcomes back to
it; `Poller` promotes due jobs.
"""

from jobwire.worker.launcher import Launcher

__all__ = ["Launcher"]
