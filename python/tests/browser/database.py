"""A database with something on every page."""

from __future__ import annotations

import json
import time
import warnings
from typing import Any

from harness.servers import Server, wait_until
from jobwire import Client
from jobwire.inspect import PeriodicEntry, PeriodicJobs
from tests.apps import recording
from tests.samples import AT, DUE, failure, payload
from tests.workers import WorkerProcess, Workers

APP = "tests.apps.recording:app"
RETRIED, DIED, LATER, PARKED = "a" * 24, "b" * 24, "c" * 24, "d" * 24  # jids


def fill(server: Server, workers: Workers) -> WorkerProcess:
    """Fill queues, sets, counters and records; return a worker that runs two jobs."""
    client = server.client()
    with Client(server.url) as push, warnings.catch_warnings():
        # The thread of Playwright has a running loop, which does nothing meanwhile.
        warnings.simplefilter("ignore", RuntimeWarning)
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
    client.zadd("jobwire:parked", {payload("BidJob", PARKED): AT})
    client.sadd("jobwire:paused", "low")
    _schedule(server)
    client.set(f"jobwire:unique:{'a' * 64}", DIED, ex=3600)
    _limits_and_batches(client)
    client.hset(f"it-{RETRIED}", mapping={"ex": 1, "c": "7", "rt": "1.5"})
    return second


def _limits_and_batches(client: Any) -> None:
    """Write a limit with every slot taken, a rate with a next start, and batches in each state."""
    now = time.time()
    slots = {"name": "mail-api", "key": "", "at_once": 2}
    rate = {"name": "partner", "key": "[7]", "rate": 100, "per": 60, "burst": 10}
    client.zadd("jobwire:limits", {json.dumps(one): now * 1000 for one in (slots, rate)})
    lease = (now + 3600) * 1000
    client.zadd("jobwire:limit:mail-api:held", {f"1:{RETRIED}:x": lease, f"1:{DIED}:y": lease})
    client.zadd("jobwire:limit:mail-api:line", {LATER: 1})
    client.set("jobwire:limit:partner:[7]:full", f"{(now + 3600) * 1e6:.0f}")
    for number, state in enumerate(("open", "closed", "complete", "cancelled")):
        batch = {"state": state, "total": 3000, "queue": "mails", "created_at": now - number}
        batch |= {"description": f"album {number}", "on_success": "{}"}
        client.hset(f"jobwire:batch:{number}", mapping=batch)
        client.sadd(f"jobwire:batch:{number}:failed", DIED)
    client.sadd("jobwire:batch:1:open", RETRIED, *(f"{n:024x}" for n in range(2000)))


def _schedule(server: Server) -> None:
    """Write a periodic job that has been enqueued, one that is disabled, and one of Ruby alone."""
    with PeriodicJobs(server.url) as periodic:
        nightly = PeriodicEntry(name="nightly", cron="0 3 * * *", job="ReportJob", args=["all"])
        periodic.save(nightly, tz="Europe/Berlin")
        periodic.save(PeriodicEntry(name="rates", cron="@hourly", job="RatesJob", enabled=False))
        found = periodic.find("nightly")
        assert found is not None
        periodic.run(found)
    odd = {"name": "odd", "klass": "OddJob", "cron": "every full moon", "status": "enabled"}
    client = server.client()
    client.hset("cron_job:default:odd", mapping=odd)
    client.sadd("cron_jobs:default", "cron_job:default:odd")
