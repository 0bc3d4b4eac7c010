"""For tests of programs that enqueue jobs: collect them, run them here, or run a real worker.

    with testing.fake(app) as jobs:
        sign_up("ada@example.org")
        assert jobs.enqueued("SendWelcome", args=["ada@example.org"])
        jobs.drain()

What is enqueued goes through client middleware and every check, and becomes the JSON that Redis
would get; what runs is made from that JSON again. So a job sees what it would see in a worker, and
never the objects that its caller still holds.
"""

from jobwire.testing.collecting import EnqueuedJob, Jobs, fake, inline
from jobwire.testing.real import RealServer, RealWorker, real, server, worker

__all__ = [
    "EnqueuedJob",
    "Jobs",
    "RealServer",
    "RealWorker",
    "fake",
    "inline",
    "real",
    "server",
    "worker",
]
