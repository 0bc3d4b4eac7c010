"""The worker of jobwire with the standard jobs of the conformance suite.

JOBWIRE_FETCH=basic makes it fetch as Sidekiq does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

import redis

import jobwire
from jobwire.config import CapsuleConfig, WorkerConfig
from jobwire.inspect import Inspector
from jobwire.iterables import over_sequence
from jobwire.iteration import Cursor
from jobwire.worker import process

RUN = os.environ["JOBWIRE_RUN"]
# Gates may stay shut for longer than redis-py waits by default.
control = redis.Redis.from_url(os.environ["JOBWIRE_CONTROL_URL"], socket_timeout=None)
generation: Any = int(os.environ["JOBWIRE_GENERATION"])
app = jobwire.App(os.environ["JOBWIRE_REDIS_URL"], generation=generation)


class JobwireError(Exception):
    """What failing jobs raise."""


def report(what: str, **more: Any) -> None:
    """Tell the suite."""
    job = jobwire.current_job()
    event = {"ev": what, "jid": job and job.jid, **more}
    control.rpush(f"jw:{RUN}:ev", json.dumps(event))


@app.job(name="JobwireEcho")
def echo(*args: Any) -> None:
    """Take anything."""
    report("begin", args=args)
    report("end", ok=True)


@app.job(name="JobwireFail")
def fail(message: str) -> None:
    """Fail with this message."""
    report("begin", args=[message])
    report("end", ok=False)
    raise JobwireError(message)


@app.job(name="JobwireFlaky")
def flaky(times: int) -> None:
    """Fail so many times, then succeed."""
    job = jobwire.current_job()
    report("begin", args=[times])
    count = control.incr(f"jw:{RUN}:n:{job and job.jid}")
    ok = int(count) > times  # type: ignore[arg-type]
    report("end", ok=ok)
    if not ok:
        raise JobwireError(f"time {count} of {times}")


@app.job(name="JobwireGate")
def gate(name: str) -> None:
    """Wait until the suite opens a gate."""
    report("begin", args=[name])
    control.blpop([f"jw:{RUN}:gate:{name}"], 0)
    report("end", ok=True)


@app.iterable(name="JobwireIterate")
def iterate(cursor: Cursor, count: int, gate_name: str, seconds: float) -> Iterator[object]:
    """Go through so many items, and wait at a gate with each, but no longer than these seconds."""
    for item, at in over_sequence(cursor, range(count)):
        yield at
        report("begin", args=[item])
        control.blpop([f"jw:{RUN}:gate:{gate_name}"], seconds)
        report("end", ok=True)


@app.job(name="JobwireMark")
def mark(label: str) -> None:
    """Mark a deployment."""
    report("begin", args=[label])
    with Inspector(os.environ["JOBWIRE_REDIS_URL"]) as inspector:
        inspector.mark_deploy(label)
    report("end", ok=True)


@app.job(name="JobwireSpawn")
def spawn(job: dict[str, Any]) -> None:
    """Push another job."""
    report("begin", args=[job])
    app.client.push(job["class"], job["args"], queue=job.get("queue", "default"))
    report("end", ok=True)


def main() -> int:
    """Run the worker."""
    queues = {}
    for each in os.environ["JOBWIRE_QUEUES"].split(","):
        name, colon, weight = each.rpartition(":")
        weighted = bool(colon) and weight.isdigit()
        queues[name if weighted else each] = int(weight) if weighted else 0
    capsule = CapsuleConfig(queues=queues, concurrency=int(os.environ["JOBWIRE_CONCURRENCY"]))
    fetch: Any = os.environ.get("JOBWIRE_FETCH", "reliable")
    config = WorkerConfig(
        capsules={"default": capsule},
        fetch=fetch,
        timeout=float(os.environ["JOBWIRE_GRACE"]),
        poll_interval=float(os.environ["JOBWIRE_POLL"]),
        precise=fetch == "reliable",
    )
    return process.run(app, config)


if __name__ == "__main__":
    sys.exit(main())
