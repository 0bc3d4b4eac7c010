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
from jobwire.application.config import CapsuleConfig, WorkerConfig
from jobwire.inspect import Inspector
from jobwire.iterables import over_sequence
from jobwire.protocol.iteration import Cursor
from jobwire.worker.process import process

RUN = os.environ["JOBWIRE_RUN"]
# Gates may stay shut for longer than redis-py waits by default.
control = redis.Redis.from_url(os.environ["JOBWIRE_CONTROL_URL"], socket_timeout=None)
given = os.environ["JOBWIRE_GENERATION"]
generation: Any = given if given == "auto" else int(given)
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


@app.job(name="JobwireSpoil")
def spoil(values: list[Any]) -> None:
    """Change the arguments, then fail."""
    report("begin", args=[values])
    values.clear()
    report("end", ok=False)
    raise JobwireError("spoilt")


@app.job(name="JobwireDelay")
def delay(wish: Any) -> None:
    """Fail, and have the definition say what is to become of it."""
    fail(f"{wish}")


@delay.retry_in
def chosen(count: int, error: BaseException, job: Any) -> Any:
    """Return what the argument says."""
    if job.args[0] == "raise":
        raise RuntimeError("a broken hook")
    return job.args[0]


@app.job(name="JobwireLast")
def last(message: str) -> None:
    """Fail; the hooks for its end are broken, but do report."""
    fail(message)


@last.exhausted
def exhausted(job: Any, error: BaseException) -> None:
    """Tell the suite, then fail."""
    tell("exhausted", job)
    raise RuntimeError("a broken hook")


@app.on_death
def death(job: Any, error: BaseException) -> None:
    """Tell the suite, then fail."""
    tell("death", job)
    raise RuntimeError("a broken handler")


@app.on_death
def another(job: Any, error: BaseException) -> None:
    """Tell it too, whatever became of the one before."""
    tell("death", job)


def tell(what: str, job: Any) -> None:
    """Tell the suite about a job that does not run any more."""
    control.rpush(f"jw:{RUN}:ev", json.dumps({"ev": what, "jid": job.jid}))


def skip(job: Any, call_next: Any) -> Any:
    """Skip a job whose only argument says so. A server middleware."""
    if job.args == ["skip"]:
        return None
    return call_next()


app.server_middleware.add(skip)


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
        precise=os.environ.get("JOBWIRE_PRECISE", "1" if fetch == "reliable" else "0") == "1",
    )
    return process.run(app, config)


if __name__ == "__main__":
    sys.exit(main())
