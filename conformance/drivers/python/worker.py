"""The worker of jobwire with the standard jobs of the conformance suite.

With JOBWIRE_FETCH=basic it fetches as Sidekiq does.
"""

# ruff: noqa: E402
from __future__ import annotations

import gc

gc.disable()  # nothing is garbage yet: 8 % of the time of a start

import contextlib
import json
import math
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import hiredis
from neutral import neutral

import jobwire
from jobwire.active_job import Keywords, Symbol
from jobwire.application.config import CapsuleConfig, WorkerConfig
from jobwire.iterables import over_sequence
from jobwire.protocol.iteration import Cursor
from jobwire.worker.base.timings import Timings
from jobwire.worker.process import process

gc.enable()
RUN = os.environ["JOBWIRE_RUN"]
CONTROL = urlsplit(os.environ["JOBWIRE_CONTROL_URL"])
_links = threading.local()  # of each thread, its connection to the control Redis
given = os.environ["JOBWIRE_GENERATION"]
generation: Any = given if given == "auto" else int(given)
namespace = os.environ.get("JOBWIRE_NAMESPACE", "")
app = jobwire.App(os.environ["JOBWIRE_REDIS_URL"], namespace=namespace, generation=generation)


class JobwireError(Exception):
    """The error of failing jobs."""


def control(*words: str) -> Any:
    """Return the reply of the control Redis to a command.

    Not with a client library, as to import it would take as long as to start the worker.
    """
    try:
        if not hasattr(_links, "socket"):
            _links.socket = socket.create_connection((CONTROL.hostname, CONTROL.port))
            _links.replies = hiredis.Reader()
            control("SELECT", CONTROL.path[1:])
        _links.socket.sendall(hiredis.pack_command(words))
        while (reply := _links.replies.gets()) is False:
            if not (part := _links.socket.recv(65536)):
                raise ConnectionResetError
            _links.replies.feed(part)
        return reply
    except BaseException:  # an aborted thread must not read this reply later
        vars(_links).clear()
        raise


def pause_at(name: str, seconds: float = math.inf) -> None:
    """Wait until the suite opens a gate, for at most so many seconds.

    In short steps: a thread that waits for a reply cannot be aborted.
    """
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        if control("BLPOP", f"jw:{RUN}:gate:{name}", str(min(left, 0.2))):
            break


def report(kind: str, **members: Any) -> None:
    """Report an event of the current job to the suite."""
    job = jobwire.current_job()
    event = {"ev": kind, "jid": job and job.jid, **members}
    control("RPUSH", f"jw:{RUN}:ev", json.dumps(event))


@app.job(name="JobwireEcho")
def echo(*args: Any) -> None:
    """Accept any arguments."""
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
    """Fail `times` times, then succeed."""
    job = jobwire.current_job()
    report("begin", args=[times])
    count = control("INCR", f"jw:{RUN}:n:{job and job.jid}")
    ok = int(count) > times
    report("end", ok=ok)
    if not ok:
        raise JobwireError(f"time {count} of {times}")


@app.job(name="JobwireGate")
def gate(name: str) -> None:
    """Wait until the suite opens a gate."""
    report("begin", args=[name])
    pause_at(name)
    report("end", ok=True)


@app.job(name="JobwireReturn")
def give(value: Any) -> Any:
    """Return this value; of `native` and `large`, one that JSON lacks and one of 1.4 MB."""
    report("begin", args=[value])
    report("end", ok=True)
    match value:
        case "native":
            return object()
        case "large":
            return "é" * 700_000  # few characters, many bytes
    return value


@app.job(name="JobwireOnce", redeliver=False, retry=False)
def once(value: Any) -> Any:
    """Return this value; acknowledged before it runs."""
    return give(value)


@app.job(name="JobwireObey")
def obey(how: str) -> None:
    """Run until it is asked to end; then end as cancelled, or return if told so."""
    report("begin", args=[how])
    job = jobwire.current_job()
    while job is not None and not job.cancelled:
        time.sleep(0.02)
    report("end", ok=True)
    if how == "end":
        raise jobwire.Cancelled
    if how == "fail":
        raise JobwireError("asked to end")


@app.job(name="JobwireProgress")
def progress(reports: list[list[Any]], name: str) -> None:
    """Report the progress of each entry, and wait at a gate before the last one.

    A report that the library refuses counts as none.
    """
    report("begin", args=[reports, name])
    for at, (done, total, note) in enumerate(reports, 1):
        if at == len(reports):
            pause_at(name)
        with contextlib.suppress(jobwire.InvalidArgument):
            jobwire.report_progress(done, total, note)
    report("end", ok=True)


@app.job(name="JobwireEmit")
def emit(items: list[Any], name: str) -> None:
    """Emit each item, and wait at a gate before the last one; fail if that is `fail`.

    An item that the library refuses counts as none.
    """
    report("begin", args=[items, name])
    odd = {
        "native": [object()],
        "edge": ["x" * 16_382],
        "large": ["x" * 16_383],
        "many": range(12_000),
    }
    for at, item in enumerate(items, 1):
        if at == len(items):
            pause_at(name)
        with contextlib.suppress(jobwire.InvalidArgument):
            app.emit(*(odd.get(item, [item]) if isinstance(item, str) else [item]))
    report("end", ok=items[-1] != "fail")
    if items[-1] == "fail":
        raise JobwireError("fail")


app.sidekiq_status("JobwireProgress", "JobwireObey")


@app.active_job("JobwireActive")
def active(*args: Any, **kwargs: Any) -> None:
    """Accept any arguments; fail if the first one is `fail`."""
    # Only what arrives as keyword arguments is shown as such.
    given = [dict(arg) if isinstance(arg, Keywords) else arg for arg in args]
    if kwargs:
        given.append(Keywords({Symbol(key): kwargs[key] for key in kwargs}))
    report("begin", args=neutral(given))
    report("end", ok=True)
    if args[:1] == ("fail",):
        raise JobwireError("fail")


@app.job(name="JobwireSnooze")
def snooze(seconds: float, limit: int) -> None:
    """Put itself off."""
    report("begin", args=[seconds, limit])
    report("end", ok=True)
    raise jobwire.Snooze(seconds, limit=limit)


@app.iterable(name="JobwireIterate")
def iterate(
    cursor: Cursor, count: int, gate_name: str, seconds: float, wrong: int | None = None
) -> Iterator[object]:
    """Iterate over `count` items, and wait at a gate at each item, for at most `seconds`.

    The item `wrong` raises.
    """
    for item, at in over_sequence(cursor, range(count)):
        yield at
        report("begin", args=[item])
        pause_at(gate_name, seconds)
        report("end", ok=item != wrong)
        if item == wrong:
            raise JobwireError(f"item {item}")


@app.job(name="JobwireMark")
def mark(label: str) -> None:
    """Mark a deployment."""
    report("begin", args=[label])
    with jobwire.Inspector(os.environ["JOBWIRE_REDIS_URL"], namespace=namespace) as inspector:
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


@app.job(name="JobwireMessage")
def message(kind: str) -> None:
    """Fail with a message that cannot be encoded, or without one."""
    report("begin", args=[kind])
    report("end", ok=False)
    raise JobwireError("a\ud800b") if kind == "broken" else JobwireError


@app.job(name="JobwireDelay")
def delay(wish: Any) -> None:
    """Fail; the hook `retry_in` decides on the fate of the job."""
    fail(f"{wish}")


@delay.retry_in
def chosen(job: Any, error: BaseException, count: int) -> Any:
    """Return the argument of the job, or raise an error."""
    if job.args[0] == "raise":
        raise RuntimeError("a broken hook")
    return job.args[0]


@app.job(name="JobwireLast")
def last(message: str) -> None:
    """Fail; the hooks for its end report and then fail."""
    fail(message)


@last.exhausted
def exhausted(job: Any, error: BaseException) -> None:
    """Report to the suite, then fail."""
    report_end("exhausted", job)
    raise RuntimeError("a broken hook")


@app.on_death
def death(job: Any, error: BaseException) -> None:
    """Report to the suite, then fail."""
    report_end("death", job)
    raise RuntimeError("a broken handler")


@app.on_death
def another(job: Any, error: BaseException) -> None:
    """Report to the suite also, even after the failure of the first handler."""
    report_end("death", job)


def report_end(kind: str, job: Any) -> None:
    """Report an event of a job that no longer runs."""
    control("RPUSH", f"jw:{RUN}:ev", json.dumps({"ev": kind, "jid": job.jid}))


def skip(job: Any, call_next: Any) -> Any:
    """Skip a job whose only argument is `skip`. A server middleware."""
    if job.args == ["skip"]:
        return None
    return call_next()


app.server_middleware.add(skip)


def main() -> int:
    """Run the worker."""
    if "JOBWIRE_MUTATE" in os.environ:
        import mistakes

        mistakes.make(os.environ["JOBWIRE_MUTATE"])
    queues = {}
    for queue in os.environ["JOBWIRE_QUEUES"].split(","):
        name, colon, weight = queue.rpartition(":")
        weighted = bool(colon) and weight.isdigit()
        queues[name if weighted else queue] = int(weight) if weighted else 0
    concurrency = int(os.environ["JOBWIRE_CONCURRENCY"])
    capsules = {"default": CapsuleConfig(queues=queues, concurrency=concurrency)}
    if "JOBWIRE_BESIDE" in os.environ:
        beside = dict.fromkeys(os.environ["JOBWIRE_BESIDE"].split(","), 0)
        capsules["beside"] = CapsuleConfig(queues=beside, concurrency=concurrency)
    fetch: Any = os.environ.get("JOBWIRE_FETCH", "reliable")
    config = WorkerConfig(
        capsules=capsules,
        fetch=fetch,
        timeout=float(os.environ["JOBWIRE_GRACE"]),
        poll_interval=float(os.environ["JOBWIRE_POLL"]) if "JOBWIRE_POLL" in os.environ else None,
        unknown_jobs="park" if os.environ.get("JOBWIRE_UNKNOWN") == "park" else "retry",
        foreign={"bid": "run"},  # an ordinary field of others in cases of PAY-7 and PAY-13
        precise=os.environ.get("JOBWIRE_PRECISE", "1" if fetch == "reliable" else "0") == "1",
    )
    timings = Timings()
    if "JOBWIRE_POLL" in os.environ:
        look = float(os.environ["JOBWIRE_POLL"])
        timings = replace(timings, periodic_look=lambda *, jitter: look * (0.5 + jitter))
    if "JOBWIRE_BEAT" in os.environ:
        timings = replace(timings, heartbeat_interval=float(os.environ["JOBWIRE_BEAT"]))
    return process.run(app, config, timings=timings)


if __name__ == "__main__":
    sys.exit(main())
