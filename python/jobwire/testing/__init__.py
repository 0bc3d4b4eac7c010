"""Tools for tests of programs that enqueue jobs: collect jobs, run them, or run a real worker.

    with testing.fake(app) as jobs:
        sign_up("ada@example.org")
        assert jobs.enqueued("SendWelcome", args=["ada@example.org"])
        jobs.drain()

An enqueued job goes through client middleware and all checks, and becomes the JSON that Redis would
get. A job runs with the values of that JSON. So it sees the same values as in a worker, and never
the objects of its caller.
"""

from jobwire.testing.clock import PeriodicTick, periodic_ticks
from jobwire.testing.collecting import EnqueuedJob, Jobs, fake, inline, strict
from jobwire.testing.real import RealServer, RealWorker, real, server, worker

__all__ = [
    "EnqueuedJob",
    "Jobs",
    "PeriodicTick",
    "RealServer",
    "RealWorker",
    "fake",
    "inline",
    "periodic_ticks",
    "real",
    "server",
    "strict",
    "worker",
]
