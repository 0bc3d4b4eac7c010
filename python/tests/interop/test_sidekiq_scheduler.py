"""Scheduling and promotion by real Sidekiq: odd times, odd members, several schedulers."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
import redis

from harness.servers import wait_until
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


def test_times_that_are_none(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SCHED-4, SCHED-3: nil, NaN and a text are pushed at once, like the past."""
    client.lpush("queue:work", json.dumps({"class": "TimesJob", "args": [], "jid": "j"}))
    with sidekiq.worker(queues=["work"], poll=None, concurrency=1, options=OPTIONS):
        wait_until(lambda: client.lrange("app:times", -1, -1) == [b"end"], 60, "all pushes")
    pushed = [item["args"][0] for item in queued(client, "default")]
    assert pushed == ["text", "-10**10", "-5", "NaN", "nil"]
    assert not client.exists("schedule")


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
