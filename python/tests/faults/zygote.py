"""A process that forks the processes under test, so that none of them has to import anything.

Requests are lines of JSON on standard input, each answered by a line on standard output:

    {"start": "worker" or the name of a push of `pushes`, "url": ..., "record": ...,
     "log": path, "settings": {...}}     -> {"pid": 123}
    {"wait": 123}                        -> {"status": null while it runs, then its exit status}

At the end of its input it kills the processes that it has started, and ends.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import redis

from jobwire.application.config import CapsuleConfig, WorkerConfig
from jobwire.protocol import pushing
from jobwire.worker.base.timings import Timings
from jobwire.worker.execute.joblog import set_up
from jobwire.worker.process import process
from tests.faults import jobs
from tests.faults.pushes import PUSHES

# With the defaults every run would wait for seconds, which do not affect the loss of jobs.
TIMINGS = Timings(
    stop_check_interval=0.02,
    untracked_poll_interval=0.02,
    outcome_retry_interval=0.1,
    reclaim_interval=0.1,
    fetch_safety_interval=1.0,
    brpop_timeout=0.2,
    unusable_queues_pause=0.1,
    longest_outage_pause=0.1,
    periodic_look=lambda jitter: 0.5,
)


def cut_into_small_slices() -> None:
    """Split a push of a few jobs into several messages."""
    pushing.JOBS_PER_SLICE, pushing.SCHEDULED_JOBS_PER_SLICE = 20, 5


def work(request: dict[str, Any]) -> int:
    """Run a worker, as `jobwire worker` does."""
    set_up("json", "info")
    jobs.app.connect(request["url"])
    settings = dict(request["settings"])
    beat = settings.pop("heartbeat_interval", TIMINGS.heartbeat_interval)
    capsule = CapsuleConfig(
        queues=dict.fromkeys(settings.pop("queues"), 0),
        concurrency=settings.pop("concurrency"),
    )
    settings = {"periodic": False, **settings}
    config = WorkerConfig(capsules={"default": capsule}, **settings)
    return process.run(jobs.app, config, timings=replace(TIMINGS, heartbeat_interval=beat))


def push(request: dict[str, Any]) -> int:
    """Push jobs and record the outcomes."""
    with redis.Redis.from_url(request["record"]) as record:
        PUSHES[request["start"]](request["url"], record)
    return 0


def fork(request: dict[str, Any]) -> int:
    """Return the pid of a new process that carries out the request."""
    sys.stdout.flush()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        null, log = os.open(os.devnull, os.O_RDWR), os.open(request["log"], os.O_WRONLY)
        os.dup2(null, 0)
        os.dup2(null, 1)
        os.dup2(log, 2)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        jobs.record_to(request["record"])
        run: Callable[[dict[str, Any]], int] = work if request["start"] == "worker" else push
        status = run(request)
    except BaseException:
        logging.exception("failed")
    finally:
        os._exit(status)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it ends with its input
    cut_into_small_slices()
    running: set[int] = set()
    try:
        for line in sys.stdin:
            request = json.loads(line)
            if pid := request.get("wait"):
                ended, how = os.waitpid(pid, os.WNOHANG)
                status = os.waitstatus_to_exitcode(how) if ended else None
                if ended:
                    running.discard(pid)
                answer: dict[str, int | None] = {"status": status}
            else:
                pid = fork(request)
                running.add(pid)
                answer = {"pid": pid}
            print(json.dumps(answer), flush=True)  # noqa: T201 - the answer
    finally:
        for pid in running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
