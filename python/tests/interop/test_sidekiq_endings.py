"""Unusual ends of jobs in real Sidekiq: odd errors, odd queues for a retry, the last hooks."""

from __future__ import annotations

import json
import time
from typing import Any, cast

import pytest
import redis

from harness.servers import wait_until
from tests.interop.driver import Driver
from tests.interop.sidekiq import RealSidekiq, results, started
from tests.interop.test_sidekiq_failures import hooks, members

pytestmark = pytest.mark.interop

OPTIONS = ["-r", "./endings.rb"]


def push(client: redis.Redis, name: str, number: int, *args: Any, **fields: Any) -> str:
    """Push a raw payload; return its jid."""
    jid = f"{number:024x}"
    item = {"class": name, "args": args, "jid": jid, "queue": "default", "retry": True, **fields}
    client.lpush("queue:default", json.dumps(item))
    return jid


def counted(client: redis.Redis, name: str) -> int:
    return int(cast("bytes | None", client.get(f"stat:{name}")) or 0)


def test_the_name_of_an_error(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """RETRY-20, RETRY-3: the qualified name; null for a class without a name."""
    jids = {
        "nameless": push(client, "NamelessJob", 1, "why"),
        "silent": push(client, "SilentJob", 2),
        "qualified": push(client, "QualifiedJob", 3),
    }
    with sidekiq.worker(poll=None, options=OPTIONS):
        wait_until(lambda: client.zcard("retry") == len(jids), 60, "the retries")
    stored = {name: members(client, "retry")[jid][0] for name, jid in jids.items()}
    seen = {name: (item["error_class"], item["error_message"]) for name, item in stored.items()}
    assert seen == {
        "nameless": (None, "why"),
        "silent": ("ShoutError", "ShoutError"),
        "qualified": ("Reports::Refused", "no"),
    }


@pytest.mark.parametrize("queue", ["", 5])
def test_an_odd_queue_for_the_retry(sidekiq: RealSidekiq, client: redis.Redis, queue: Any) -> None:
    """RETRY-7, RETRY-32: every truthy `retry_queue` becomes the queue; null and false do not."""
    odd = push(client, "FailJob", 1, retry_queue=queue)
    usual = [
        push(client, "FailJob", 2 + n, retry_queue=each) for n, each in enumerate([None, False])
    ]
    with sidekiq.worker(poll=None):
        wait_until(lambda: client.zcard("retry") == 3, 60, "the retries")
    stored = members(client, "retry")
    assert stored[odd][0]["queue"] == queue
    assert [stored[jid][0]["queue"] for jid in usual] == ["default", "default"]


def test_a_job_that_raises_the_error_of_a_stop(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """RETRY-10: taken for an interrupted job, and lost, because the worker does not stop."""
    jid = push(client, "LeavingJob", 1)
    with sidekiq.worker(poll=None, concurrency=1, options=OPTIONS) as worker:
        wait_until(lambda: started(client) == [jid], 60, "the job")
        push(client, "EchoJob", 2)
        wait_until(lambda: results(client), 60, "the next job")
        worker.stop()
    assert started(client) == [jid]
    for name in ("retry", "dead"):
        assert client.zcard(name) == 0
    assert client.llen("queue:default") == 0


def test_the_exhausted_hook_discards(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """RETRY-28: its answer keeps the job out of `dead`; 6 does not know the answer."""
    jid = push(client, "WorthlessJob", 1, retry=0)
    kept = push(client, "FailToDeadJob", 2, retry=0)
    with sidekiq.worker(poll=None, concurrency=1, options=OPTIONS) as worker:
        wait_until(lambda: kept in members(client, "dead"), 60, "the other job's death")
        worker.stop()
    assert hooks(client, jid)[0] == ("exhausted", 0)
    assert (jid in members(client, "dead")) is (sidekiq.generation == 6)
    told = [name for name, _ in hooks(client, jid)][1:]
    assert told == ([] if sidekiq.generation == 7 else ["death", "second-death"])


def test_a_job_that_is_not_kept_dead(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """DEAD-4, DEAD-5, DEAD-6: nothing is stored, the failure counts.

    Hook and handlers are called.
    """
    jid = push(client, "ForgottenJob", 1, retry=0, dead=False)
    with sidekiq.worker(poll=None, concurrency=1, options=OPTIONS) as worker:
        wait_until(lambda: hooks(client, jid)[2:], 60, "the handlers")
        worker.stop()
    assert hooks(client, jid) == [("exhausted", 0), ("death", 0), ("second-death", 0)]
    assert client.zcard("dead") == client.zcard("retry") == 0
    assert (counted(client, "processed"), counted(client, "failed")) == (1, 1)


def test_what_the_steps_leave(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """RETRY-18: an exhausted job holds what all steps before its death have written."""
    fields: dict[str, Any] = {"retry": 1, "retry_queue": "slow", "backtrace": True}
    failed = {"retry_count": 0, "failed_at": 1.5, "error_message": "old", "error_class": "Old"}
    jid = push(client, "FailJob", 1, "boom", **fields, **failed)
    dropped = push(client, "FailJob", 2, "boom", **{**fields, "retry": False})
    with sidekiq.worker(poll=None, concurrency=1) as worker:
        wait_until(lambda: hooks(client, dropped), 60, "the handlers")
        worker.stop()
    (item, _), *others = members(client, "dead").values()
    assert not others
    assert item["jid"] == jid
    names = ("queue", "error_message", "error_class", "retry_count", "failed_at")
    assert [item[name] for name in names] == ["slow", "boom", "RuntimeError", 1, 1.5]
    assert item["retried_at"] > 1e9
    assert item["error_backtrace"]


@pytest.mark.parametrize("retry", [0, 1])
def test_a_time_limit_and_a_count(sidekiq: RealSidekiq, client: redis.Redis, retry: int) -> None:
    """RETRY-6, RETRY-29, RETRY-30: 8 looks at the time alone, 7 at both, 6 at the count alone."""
    ago = time.time() - 100
    failed = round(ago * 1000) if sidekiq.generation == 8 else ago
    fields: dict[str, Any] = {"retry_count": 0, "failed_at": failed}
    by_count = push(client, "FailJob", 1, retry=retry, retry_for=3600, **fields)
    by_time = push(client, "FailJob", 2, retry=25, retry_for=60, **fields)
    with sidekiq.worker(poll=None, concurrency=1):
        wait_until(lambda: client.zcard("retry") + client.zcard("dead") == 2, 60, "the failures")
    dead = {by_count, by_time}
    if sidekiq.generation == 8:
        dead.remove(by_count)
    if sidekiq.generation == 6:
        dead.remove(by_time)
    assert set(members(client, "dead")) == dead


def test_an_unknown_class_without_retry(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """RETRY-31: it counts as false. With `retry`, the job is retried."""
    push(client, "NoSuchJob", 1, retry=None)
    kept = push(client, "NoSuchJob", 2)
    with sidekiq.worker(poll=None, concurrency=1) as worker:
        wait_until(lambda: client.zcard("retry") == 1, 60, "the retry")
        worker.stop()
    assert set(members(client, "retry")) == {kept}
    assert client.zcard("dead") == client.llen("queue:default") == 0
    assert counted(client, "failed") == 2


def test_the_draws_of_a_delay(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """RETRY-15, RETRY-4: 8 draws from 100 numbers, 6 and 7 from ten."""
    count = 200
    for number in range(count):
        push(client, "FailJob", number, "no", retry_count=8, failed_at=1.5)
    with sidekiq.worker(poll=None, concurrency=1):
        wait_until(lambda: client.zcard("retry") == count, 60, "the retries")
    unit = 1000 if sidekiq.generation == 8 else 1
    draws = {
        round(score - item["retried_at"] / unit - 9**4 - 15)
        for item, score in members(client, "retry").values()
    }
    assert draws <= set(range(100))
    if sidekiq.generation == 8:
        assert len(draws) >= 60
    else:
        assert draws <= set(range(0, 100, 10))
