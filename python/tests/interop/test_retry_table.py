"""One failing job for each value of `retry` and related fields: same outcome in both languages."""

from __future__ import annotations

import json
import time
from typing import Any, cast

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire.protocol.times import read
from tests.interop.app import make_app
from tests.interop.driver import Driver
from tests.interop.python_worker import worker_threads
from tests.interop.shapes import differences
from tests.interop.sidekiq import RealSidekiq

pytestmark = pytest.mark.interop

ABSENT = object()
RETRY: list[Any] = [
    *(True, False, None, ABSENT, 0, -1, 1, 2, 25, 100),
    *("5", "0", "", 1.0, 0.0, [], {}, {"max": 3}),
]
RETRY_COUNT: list[Any] = [ABSENT, None, -1, 0, 1, 23, 24, 25]
OTHERS: list[dict[str, Any]] = [
    {"retry_queue": "low"},
    {"retry_queue": None},
    {"queue": "another"},
    {"queue": None},
    {"retry": 0, "dead": False},
    {"retry": 0, "dead": None},
    {"retry": 0, "dead": 0},
    {"retry": False, "dead": True},
    {"backtrace": 0},
    {"backtrace": False},
    {"backtrace": None},
    {"args": ["m" * 10_001]},
    {"args": ["\U0001f600" * 10_001]},
    {"args": ["", "RuntimeError"]},
    {"args": None},
    {"failed_at": 1700000000.5, "retry_count": 3, "retried_at": 1700000001.5},
    {"failed_at": 1700000000500, "retry_count": 3, "retried_at": 1700000001500},
    {"error_class": "Old", "error_message": "old", "retry_count": 0, "failed_at": 1700000000.5},
    {"jid": "a*b[c]?"},
]
# `retry_for` exists since 7.1, and replaces the count since 8.1. [RETRY-6] [RETRY-29] [RETRY-30]
RETRY_FOR: list[dict[str, Any]] = [
    {"retry_for": 100},
    {"retry_for": 0},
    {"retry_for": None},
    {"retry_for": False},
]
OVERDUE: dict[str, Any] = {"retry_for": 5, "failed_at": 1700000000.5, "retry_count": 1}
CLASSES = ["FailJob", "FailWithoutRetryJob", "FailToDeadJob", "FailOnceMoreJob"]


def rows(generation: int) -> list[dict[str, Any]]:
    """Return the fields in which the jobs differ."""
    rows = [
        {"class": name, "retry": retry, "retry_count": count}
        for name in CLASSES
        for retry in RETRY
        for count in (RETRY_COUNT if name == "FailJob" else RETRY_COUNT[:1])
    ]
    rows += OTHERS
    # An unknown class has no options.
    rows += [{"class": "NoSuchJob", "retry": retry} for retry in RETRY]
    if generation >= 7:
        rows += [*RETRY_FOR, OVERDUE]
        rows += [{"retry": retry, **each} for retry in (0, 1) for each in [*RETRY_FOR, OVERDUE]]
    return rows


def payload(number: int, row: dict[str, Any]) -> bytes:
    """Return the raw payload of a row; its jid holds the number of the row."""
    item = {"retry": True, "queue": "default", "class": "FailJob", "args": ["boom"]}
    item |= {"jid": f"{number:024x}", "created_at": 1700000000.25, "enqueued_at": 1700000000.5}
    item |= row
    fields = {name: value for name, value in item.items() if value is not ABSENT}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def outcomes(client: redis.Redis) -> dict[str, Any]:
    """Return jid to set and payload, with types in place of times; check the delays."""
    found = {}
    now = time.time()
    for name in ("retry", "dead"):
        for member, score in cast("Any", client.zrange(name, 0, -1, withscores=True)):
            item = json.loads(member)
            if name == "retry":  # [RETRY-4]; the job failed some seconds ago
                count = item["retry_count"]
                assert -20 < score - now - count**4 - 15 < 10 * (count + 1), member
            for field in ("failed_at", "retried_at"):
                if abs((read(item.get(field)) or 0.0) - now) < 60:
                    item[field] = type(item[field]).__name__
            if item["error_class"] in ("NameError", "jobwire.errors.UnknownJob"):
                item["error_class"] = item["error_message"] = "unknown class"
            if "error_backtrace" in item:  # in lines of 60 characters, up to 7.2.0
                item["error_backtrace"] = item["error_backtrace"].replace("\n", "")
            assert item["jid"] not in found
            found[item["jid"]] = [name, item]
    return found


def test_a_promotion_makes_a_missing_retry_true(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server
) -> None:
    """SCHED-6, RETRY-1: in both languages, also where the definition of the class says false."""

    def fail_two() -> None:
        for number, route in enumerate(("queue", "schedule")):
            text = payload(number, {"class": "FailWithoutRetryJob", "retry": ABSENT})
            if route == "queue":
                client.lpush("queue:default", text)
            else:
                client.zadd("schedule", {text: 1.0})

    def kept() -> dict[str, Any]:
        return {jid: item["retry"] for jid, (_, item) in outcomes(client).items()}

    def ran() -> bool:
        return bool(client.zcard("retry")) and not client.llen("queue:default")

    fail_two()
    with sidekiq.worker(poll=0.5, concurrency=1) as worker:
        wait_until(ran, 60, "the run in Ruby")
        worker.stop()
    assert kept() == {f"{1:024x}": True}
    driver.flush()
    fail_two()
    with worker_threads(server.url, poll=0.5, concurrency=1):
        wait_until(ran, 60, "the run in Python")
    assert kept() == {f"{1:024x}": True}


def test_same_outcome(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server
) -> None:
    """RETRY-1 to RETRY-7, RETRY-29, RETRY-30, DEAD-1, DEAD-4, EXEC-2, GEN-1, GEN-2: and their keys.

    Inherent differences: the moment, the jitter, and the error of an unknown class. Differences on
    purpose: a `retry_queue` of "" counts as none, because a nameless queue cannot be fetched.
    """
    table = rows(sidekiq.generation)
    payloads = [payload(number, row) for number, row in enumerate(table)]

    def processed() -> bool:
        return client.get("stat:processed") == str(len(payloads)).encode()

    client.lpush("queue:default", *payloads)
    with sidekiq.worker(poll=None, concurrency=4) as worker:
        # TERM would put back a job that was just fetched. Each heartbeat writes the counter.
        wait_until(processed, 60, "the run in Ruby")
        worker.stop()
    ruby = outcomes(client)
    driver.flush()

    client.lpush("queue:default", *payloads)
    app = make_app(generation=8 if sidekiq.generation == 8 else 7)
    with worker_threads(server.url, app=app):
        wait_until(processed, 60, "the run in Python")
    assert differences(ruby, outcomes(client)) == []
