"""A worker process of the bench: `python -m jobwire.bench.worker NAMESPACE CONCURRENCY POLL`.

The URL of Redis is in JOBWIRE_REDIS_URL, because it may hold a password and other users can read
a command line. The process writes a line to standard output when it is ready. For each line on
standard input, it writes the CPU time and the round trips that it has used. The end of standard
input stops it, so it ends with the bench.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time

from jobwire.application.config import CapsuleConfig, WorkerConfig
from jobwire.bench.jobs import count_trips, make_app, say
from jobwire.worker.process import process

__all__: list[str] = []


def main(namespace: str, concurrency: str, poll: str) -> int:
    logging.getLogger("jobwire").setLevel(logging.CRITICAL + 1)  # the jobs of one run fail
    trips = count_trips()
    app = make_app(os.environ["JOBWIRE_REDIS_URL"], namespace)

    @app.on("heartbeat")
    def ready() -> None:
        say({"ready": 1})

    def answer() -> None:
        for _ in sys.stdin:
            say({"cpu": time.process_time(), "trips": trips[0]})
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=answer, name="bench-answer", daemon=True).start()
    capsule = CapsuleConfig(concurrency=int(concurrency))
    config = WorkerConfig(
        capsules={"default": capsule}, timeout=2.0, poll_interval=float(poll), tag="bench"
    )
    return process.run(app, config)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
