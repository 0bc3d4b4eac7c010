"""A database with something on every page."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

from harness.servers import Server, wait_until
from jobwire import Client
from tests.apps import recording
from tests.workers import WorkerProcess, Workers

APP = "tests.apps.recording:app"
RETRIED, DIED, LATER = "a" * 24, "b" * 24, "c" * 24  # jids
AT = 1_795_192_067.25
DUE = 4_000_000_000.25  # of retries, so that no poller takes them


def fill(server: Server, workers: Workers) -> WorkerProcess:
    """Fill queues, sets, counters and records; return a worker that runs two jobs."""
    client = server.client()
    with Client(server.url) as push:
        push.push_bulk("Note", [[number] for number in range(20)])
        push.push("Fail", ["no such customer: 4711"])
        first = workers.start(APP, "--redis", server.url, "--timeout", "2")
        wait_until(lambda: client.get("stat:processed") == b"21")
        first.process.terminate()
        assert first.wait() == 0
        push.push_bulk("Hold", [[number] for number in range(2)])
        second = workers.start(APP, "--redis", server.url, "-c", "2", "--timeout", "2")
        wait_until(lambda: client.llen(recording.STARTED) == 2)
        wait_until(lambda: client.keys("*:work"))
        push.push_bulk(
            "ReportJob", [[number, {"to": "ada"}] for number in range(60)], queue="mails"
        )
        push.push("NobodyJob", [], queue="low")
    client.zadd("schedule", {payload("LaterJob", LATER): time.time() + 3600})
    client.zadd("retry", {payload("InvoiceJob", RETRIED, **failure("Timeout")): DUE})
    client.zadd(
        "retry", {payload("InvoiceJob", f"{n:024x}", **failure()): DUE + n for n in range(40)}
    )
    client.zadd("dead", {payload("MailJob", DIED, **failure("Net::SMTPError", count=25)): AT})
    client.zadd("dead", {b"not JSON \xff <b>": AT + 1})
    client.zadd("jobwire:unreadable", {b"[1]": AT})
    client.sadd("jobwire:paused", "low")
    client.hset(f"it-{RETRIED}", mapping={"ex": 1, "c": "7", "rt": "1.5"})
    return second


def payload(class_name: str, jid: str, **fields: Any) -> bytes:
    """Return a payload of queue `mails`."""
    job: dict[str, Any] = {"class": class_name, "args": [7, "x"], "jid": jid, "queue": "mails"}
    times = {"retry": True, "created_at": int(AT * 1000), "enqueued_at": int(AT * 1000)}
    return json.dumps({**job, **times, **fields}).encode()


def failure(error: str = "ValueError", *, count: int = 3) -> Mapping[str, Any]:
    """Return the fields that a failure adds."""
    return {
        "error_class": error,
        "error_message": "order 12 is <not> there",
        "error_backtrace": ["app/invoices.py:12:in `charge'", "app/jobs.py:7:in `run'"],
        "failed_at": int(AT * 1000),
        "retry_count": count,
    }
