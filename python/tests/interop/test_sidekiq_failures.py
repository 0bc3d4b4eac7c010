"""Sidekiq's hooks of a failing job, and its treatment of unknown fields."""

from __future__ import annotations

import json
import time
from typing import Any, cast

import pytest
import redis

from harness.servers import wait_until
from tests.interop.driver import Driver
from tests.interop.sidekiq import RealSidekiq

pytestmark = pytest.mark.interop

# PAY-13: fields of other products and middleware.
RESERVED: dict[str, Any] = {
    "bid": "b1Zqlsf6rQ0kYQ",
    "encrypt": True,
    "unique_for": 600,
    "unique_until": "start",
    "expires_in": 3600.5,
    "overrated": 3,
    "cattr": {"user": 7},
    "cattr_1": [["tenant", 2**70]],
    "locale": "pt-BR",
    "wrapped": None,
    "display_class": "Shown",
    "interrupted_count": 2,
    "size_limiter": "validated",
    "profiler_options": {"mode": "cpu"},
    "jw_own": [1.0, {}],
}


def members(client: redis.Redis, key: str) -> dict[str, tuple[dict[str, Any], float]]:
    """Return jid to payload and score."""
    found = cast("Any", client.zrange(key, 0, -1, withscores=True))
    return {item["jid"]: (item, score) for item, score in ((json.loads(p), s) for p, s in found)}


def hooks(client: redis.Redis, jid: str) -> list[tuple[str, int]]:
    """Return the hooks that ran for a job, in order, with the size of the dead set at that time."""
    lines = [line.decode().split() for line in cast("Any", client.lrange("app:hooks", 0, -1))]
    return [(name, int(size)) for name, of, size in lines if of == jid]


def test_hooks_of_a_failing_job(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """RETRY-11 to RETRY-13, RETRY-24 to RETRY-27: a chosen delay, discard, kill, and exhaustion.

    [RETRY-12] [RETRY-25] [RETRY-26]
    """
    delays = ("hundred", "zero", "negative", "nil", "raises")
    jids = {name: str(driver.perform_async("RetryInJob", name)) for name in delays}
    before = time.time()
    with sidekiq.worker(poll=None):
        wait_until(lambda: client.zcard("retry") == len(delays), 60, "the retries")
        discarded = str(driver.perform_async("RetryInJob", "discard"))
        wait_until(lambda: client.llen("queue:default") == 0, 60, "the discard")
        if sidekiq.generation == 8:  # the others call no handler
            wait_until(lambda: hooks(client, discarded)[1:], 60, "the handlers of the discard")
        killed = str(driver.perform_async("RetryInJob", "kill"))
        if sidekiq.generation == 6:  # has neither word, and its failure code raises: stored
            both = {discarded, killed}
            wait_until(lambda: both <= set(members(client, "retry")), 60, "both retries")
        else:
            wait_until(lambda: ("second-death", 1) in hooks(client, killed), 60, "the burial")
        broken = str(driver.perform_async("BrokenHookJob"))
        wait_until(lambda: [n for n, _ in hooks(client, broken)][2:], 60, "the second kill")
        last = client.zcard("dead")
    retries = members(client, "retry")
    for name in delays:
        item, score = retries[jids[name]]
        least = 100 if name == "hundred" else 15
        assert before + least <= score < time.time() + least + 10, name
        assert (item["retry_count"], item["error_message"]) == (0, name)
        assert hooks(client, jids[name]) == []
    # In each case the exhausted hook, then the dead set, then every handler; errors are ignored.
    assert hooks(client, broken) == [
        ("exhausted", last - 1),
        ("death", last),
        ("second-death", last),
    ]
    dead = members(client, "dead")
    assert dead[broken][0]["error_message"] == "original"
    if sidekiq.generation == 6:
        assert set(dead) == {broken}
        return
    assert set(dead) == {broken, killed}
    assert hooks(client, killed) == [("exhausted", 0), ("death", 1), ("second-death", 1)]
    assert discarded not in retries
    # 7.3.2 does not call death handlers after a discard; from 8.0.7 on they are called.
    told = [("death", 0), ("second-death", 0)] if sidekiq.generation == 8 else []
    assert hooks(client, discarded) == told


def test_fields_of_others_survive(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """PAY-13, KEY-6: through push, failure, promotion, second failure and death."""
    foreign = {"b-b1Zqlsf6rQ0kYQ", "paused", "unique:x", "cron_jobs:default", "super_processes"}
    for key in foreign:
        client.sadd(key, "default")
    fields = {name: value for name, value in RESERVED.items() if value is not None}
    jid = str(driver.push({"class": "FailJob", "args": [], "retry": 1, **fields}))
    with sidekiq.worker(poll=0.2):
        wait_until(lambda: client.zcard("retry") == 1, 60, "the retry")
        stored = members(client, "retry")[jid][0]
        assert {name: stored.get(name) for name in fields} == fields
        client.zunionstore("retry", {"retry": 0.0})
        wait_until(lambda: client.zcard("dead") == 1, 60, "the burial")
    buried = members(client, "dead")[jid][0]
    assert {name: buried.get(name) for name in fields} == fields
    assert {key: client.smembers(key) for key in foreign} == {key: {b"default"} for key in foreign}


def test_a_new_payload_that_has_failed_already(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """PAY-14: Sidekiq's client writes such a job, and its worker kills it at its first failure."""
    item = {"class": "FailJob", "args": [], "retry_count": 24, "failed_at": 1.5}
    jid = str(driver.push(item))
    with sidekiq.worker(poll=None):
        wait_until(lambda: client.zcard("dead") == 1, 60, "the burial")
    buried = members(client, "dead")[jid][0]
    assert (buried["retry_count"], buried["failed_at"]) == (25, 1.5)
    assert buried["retried_at"] > 0
