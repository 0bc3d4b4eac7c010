"""Scheduling and promotion by real Sidekiq: odd times, odd members, several schedulers."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any, cast

import pytest
import redis

from harness.servers import wait_until
from tests.interop.driver import Driver
from tests.interop.sidekiq import RealSidekiq

pytestmark = pytest.mark.interop

OPTIONS = ["-r", "./endings.rb"]
IDLE = ("idle",)  # the queue of a worker that only promotes


def member(jid: str, **fields: Any) -> str:
    return json.dumps({"class": "EchoJob", "args": [], "jid": jid, "queue": "later", **fields})


def queued(client: redis.Redis, name: str = "later") -> list[dict[str, Any]]:
    """Return the payloads of a queue, the one that was pushed last first."""
    return [json.loads(text) for text in cast("list[bytes]", client.lrange(f"queue:{name}", 0, -1))]


def jids(client: redis.Redis, name: str = "later") -> list[str]:
    return [item["jid"] for item in queued(client, name)]


def test_a_scheduled_push(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """SCHED-1, SCHED-12 to SCHED-15: no `at`, no `enqueued_at` of its own, `queues` untouched.

    [SCHED-12] [SCHED-13] [SCHED-14] [SCHED-15]
    """
    job = {"class": "EchoJob", "args": [], "queue": "later"}
    driver.push({**job, "at": 4e9})
    driver.push({**job, "at": 1000.25})
    driver.push({**job, "at": 5e9, "enqueued_at": 1.5})
    found = cast("list[tuple[bytes, float]]", client.zrange("schedule", 0, -1, withscores=True))
    assert [score for _, score in found] == [1000.25, 4e9, 5e9]
    items = [json.loads(text) for text, _ in found]
    assert [item.get("at") for item in items] == [None] * 3
    assert [item.get("enqueued_at") for item in items] == [
        *(None, None, 1.5 if sidekiq.generation == 6 else None)
    ]
    assert not client.exists("queues")


def test_times_that_are_none(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SCHED-4, SCHED-3: nil, NaN and a text are pushed at once, like the past."""
    client.lpush("queue:work", json.dumps({"class": "TimesJob", "args": [], "jid": "j"}))
    with sidekiq.worker(queues=["work"], poll=None, concurrency=1, options=OPTIONS):
        wait_until(lambda: client.lrange("app:times", -1, -1) == [b"end"], 60, "all pushes")
    pushed = [item["args"][0] for item in queued(client, "default")]
    assert pushed == ["text", "-10**10", "-5", "NaN", "nil"]
    assert not client.exists("schedule")


def test_two_schedulers(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SCHED-16: members that two processes see are pushed once."""
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(sidekiq.worker(queues=IDLE, poll=0.1, concurrency=1))
        for start in range(0, 400, 50):
            now = time.time()
            client.zadd("schedule", {member(f"j{n}"): now for n in range(start, start + 50)})
        wait_until(lambda: client.zcard("schedule") == 0, 60, "all promotions")
        wait_until(lambda: client.llen("queue:later") >= 400, 60, "all pushes")
    assert Counter(jids(client)) == Counter(f"j{n}" for n in range(400))


def test_retry_before_schedule(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SCHED-21, SCHED-20: a look empties `retry` first; each push is at the head."""
    client.zadd("schedule", {member("s1"): 1.0, member("s2"): 2.0})
    client.zadd("retry", {member("r1"): 3.0, member("r2"): 4.0})
    with sidekiq.worker(queues=IDLE, poll=0.5):
        wait_until(lambda: client.llen("queue:later") == 4, 60, "the promotions")
    assert jids(client) == ["s2", "s1", "r2", "r1"]
    assert client.sismember("queues", "later")


def test_a_promoted_payload(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SCHED-6, SCHED-7, SCHED-17, SCHED-18, SCHED-19: defaults, no `at`, and all other fields."""
    bare = '{"class":"EchoJob","args":[2.5],"jid":"bare"}'
    full = member("full", retry=None, created_at=1.5, x=[{"a": None}], retry_count=3, dead=False)
    client.zadd("schedule", {bare: 1.0, full: 2.0, member("at", at=1000.5): 3.0})
    before = time.time()
    with sidekiq.worker(queues=IDLE, poll=0.5):
        wait_until(lambda: client.llen("queue:later") == 2, 60, "the promotions")
    (item,) = queued(client, "default")
    assert (item["retry"], item["queue"], item["args"]) == (True, "default", [2.5])
    unit = 1000 if sidekiq.generation == 8 else 1
    for name in ("created_at", "enqueued_at"):
        assert before - 1 <= item[name] / unit <= time.time() + 1
    others = {item["jid"]: item for item in queued(client)}
    assert "at" not in others["at"]
    kept = {name: others["full"][name] for name in json.loads(full)}
    assert kept == json.loads(full)


def test_what_a_promotion_changes(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SCHED-19: the fraction of `retry_for` in 7 and 8, and a `jid` or `created_at` of null."""
    member_ = {"class": "EchoJob", "args": [], "queue": "later", "retry_for": 2.5, "y": None}
    client.zadd("schedule", {json.dumps({**member_, "jid": None, "created_at": None}): 1.0})
    client.zadd("schedule", {json.dumps({**member_, "jid": False, "created_at": False}): 2.0})
    with sidekiq.worker(queues=IDLE, poll=0.3):
        wait_until(lambda: client.llen("queue:later") == 2, 60, "the promotions")
    for item in queued(client):
        assert item["retry_for"] == (2.5 if sidekiq.generation == 6 else 2)
        assert (len(item["jid"]), item["y"]) == (24, None)
        assert item["created_at"] > 1e9


VANISHING: dict[str, dict[str, Any]] = {
    "no-args": {"args": ...},
    "no-class": {"class": ...},
    "args-null": {"args": None},
    "args-text": {"args": "[1]"},
    "args-object": {"args": {"a": 1}},
    "at-null": {"at": None},
    "at-text": {"at": "12"},
    "class-null": {"class": None},
    "class-number": {"class": 5},
    "tags-text": {"tags": "x"},
}


def test_members_that_vanish(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SCHED-9: all Sidekiqs lose due members that their own client would refuse."""
    with sidekiq.worker(queues=IDLE, poll=0.2):
        for name, change in VANISHING.items():
            item = {**json.loads(member(name)), **change}
            kept = {field: value for field, value in item.items() if value is not ...}
            client.zadd("schedule", {json.dumps(kept): 1.0, member(f"after-{name}"): 2.0})
            wait_until(lambda n=name: f"after-{n}" in jids(client), 60, name)  # type: ignore[misc]
    assert jids(client) == [f"after-{name}" for name in reversed(VANISHING)]
    for key in ("schedule", "retry", "dead"):
        assert client.zcard(key) == 0


def test_members_that_cannot_be_promoted(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SCHED-9, SCHED-24, SCHED-26: they vanish, and those behind them wait for the next look."""
    client.set("queue:broken", "not a list")
    bad = ['{"class":', "[1]", member("stuck", queue="broken")]
    client.zadd("schedule", {text: float(n) for n, text in enumerate(bad)})
    client.zadd("schedule", {member("good"): 9.0})
    with sidekiq.worker(queues=IDLE, poll=0.3):
        wait_until(lambda: jids(client) == ["good"], 60, "the good one")
    assert client.zcard("schedule") == client.zcard("dead") == client.zcard("retry") == 0


@pytest.mark.parametrize("queue", ["", None, 5])
def test_members_without_a_queue(sidekiq: RealSidekiq, client: redis.Redis, queue: Any) -> None:
    """SCHED-9: 5 goes to `queue:5`."""
    client.zadd("schedule", {member("odd", queue=queue): 1.0, member("good"): 9.0})
    with sidekiq.worker(queues=IDLE, poll=0.3):
        wait_until(lambda: jids(client) == ["good"], 60, "the good one")
    assert client.zcard("schedule") == client.zcard("dead") == 0
    found = {key.decode() for key in cast("list[bytes]", client.keys("queue:*"))}
    assert found - {"queue:later"} == ({"queue:5"} if queue == 5 else set())


def test_client_middleware_runs_at_a_promotion(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SCHED-28: that of the process that promotes, with the payload's jid."""
    client.zadd("schedule", {member("s"): 1.0})
    client.zadd("retry", {member("r"): 1.0})
    with sidekiq.worker(queues=IDLE, poll=0.5, options=OPTIONS):
        wait_until(lambda: client.llen("queue:later") == 2, 60, "the promotions")
    assert client.lrange("app:pushed", 0, -1) == [b"r", b"s"]


def test_the_first_look(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SCHED-23: 10 to 15 s after the start, without a configured average."""
    client.zadd("schedule", {member("j"): 1.0})
    with sidekiq.worker(queues=IDLE, poll=None):
        began = time.monotonic()
        wait_until(lambda: client.llen("queue:later") == 1, 60, "the promotion")
        waited = time.monotonic() - began
    assert 5 < waited < 20  # a process registers after its start, within a second or two
