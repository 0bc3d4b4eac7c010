"""Worker of `jobwire conform`: our worker with the five standard jobs. Fill in `start`."""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from typing import IO, Any
from urllib.parse import urlsplit


def setting(name: str, default: str) -> str:
    """Return a setting of the suite."""
    return os.environ.get(f"JOBWIRE_{name}", default)


REDIS_URL = setting("REDIS_URL", "redis://127.0.0.1:6379/0")
QUEUES = setting("QUEUES", "default").split(",")  # `a:5` has weight 5; without weights: strict
CONCURRENCY = int(setting("CONCURRENCY", "1"))
POLL = float(setting("POLL", "5"))  # seconds between looks for due jobs
BEAT = float(setting("BEAT", "10"))  # seconds between heartbeats
GRACE = float(setting("GRACE", "25"))  # seconds for running jobs after SIGTERM
GENERATION = setting("GENERATION", "8")  # 7: times in seconds, 8: milliseconds
RUN = setting("RUN", "run")


class JobwireError(Exception):
    """The error of failing jobs. The suite checks its name."""


class NotFilledIn(Exception):
    """`start` or `push` is still to be written."""


def start(jobs: dict[str, Callable[..., None]]) -> None:
    """Register these functions under their names with your worker, and run it until SIGTERM.

    Each takes the jid, then the arguments of the job.
    """
    raise NotFilledIn


def push(job: dict[str, Any]) -> None:
    """Push `job` with your client. It has class and args, and perhaps queue."""
    raise NotFilledIn


def echo(jid: str | None, *args: Any) -> None:
    """Accept any arguments."""
    report("begin", jid, args=args)
    report("end", jid, ok=True)


def fail(jid: str | None, message: str) -> None:
    """Fail with this message."""
    report("begin", jid, args=[message])
    report("end", jid, ok=False)
    raise JobwireError(message)


def flaky(jid: str | None, times: int) -> None:
    """Fail `times` times, then succeed."""
    report("begin", jid, args=[times])
    count = control("INCR", f"jw:{RUN}:n:{jid}")
    report("end", jid, ok=count > times)
    if count <= times:
        raise JobwireError(f"time {count} of {times}")


def gate(jid: str | None, name: str) -> None:
    """Wait until the suite opens a gate."""
    report("begin", jid, args=[name])
    control("BLPOP", f"jw:{RUN}:gate:{name}", "0")
    report("end", jid, ok=True)


def spawn(jid: str | None, job: dict[str, Any]) -> None:
    """Push another job."""
    report("begin", jid, args=[job])
    push(job)
    report("end", jid, ok=True)


def report(event: str, jid: str | None, **members: Any) -> None:
    """Report an event of a job to the suite."""
    control("RPUSH", f"jw:{RUN}:ev", json.dumps({"ev": event, "jid": jid, **members}))


def control(*words: str) -> Any:
    """Send one command to the control Redis and return the reply. You can use your own client."""
    url = urlsplit(setting("CONTROL_URL", REDIS_URL))
    command = b"*%d\r\n" % len(words)
    for word in map(str.encode, words):
        command += b"$%d\r\n%s\r\n" % (len(word), word)
    with socket.create_connection((url.hostname, url.port)) as connection:
        connection.sendall(f"SELECT {url.path.strip('/') or 0}\r\n".encode() + command)
        with connection.makefile("rb") as replies:
            reply(replies)
            return reply(replies)


def reply(replies: IO[bytes]) -> Any:
    """Read one reply."""
    line = replies.readline().rstrip(b"\r\n")
    kind, text = line[:1], line[1:]
    if kind == b"$":
        return replies.read(int(text) + 2)[:-2] if int(text) >= 0 else None
    if kind == b"*":
        return [reply(replies) for _ in range(int(text))]
    if kind in (b":", b"+"):
        return int(text) if kind == b":" else text
    raise OSError(f"the control Redis replied {line!r}")


JOBS = {
    "JobwireEcho": echo,
    "JobwireFail": fail,
    "JobwireFlaky": flaky,
    "JobwireGate": gate,
    "JobwireSpawn": spawn,
}

if __name__ == "__main__":
    try:
        start(JOBS)
    except NotFilledIn:
        sys.exit("worker.py: fill in `start`")
