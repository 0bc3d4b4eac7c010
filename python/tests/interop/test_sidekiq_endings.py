"""Unusual ends of jobs in real Sidekiq: odd errors, odd queues for a retry, the last hooks."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
import redis

from harness.servers import wait_until
from tests.interop.driver import Driver
from tests.interop.sidekiq import RealSidekiq

pytestmark = pytest.mark.interop

OPTIONS = ["-r", "./endings.rb"]


def push(client: redis.Redis, name: str, number: int, *args: Any, **fields: Any) -> str:
    """Push a raw payload; return its jid."""
    jid = f"{number:024x}"
    item = {"class": name, "args": args, "jid": jid, "queue": "default", "retry": True, **fields}
    client.lpush("queue:default", json.dumps(item))
    return jid


def members(client: redis.Redis, key: str) -> dict[str, tuple[dict[str, Any], float]]:
    """Return jid to payload and score."""
    found = cast("Any", client.zrange(key, 0, -1, withscores=True))
    return {item["jid"]: (item, score) for item, score in ((json.loads(p), s) for p, s in found)}


def hooks(client: redis.Redis, jid: str) -> list[tuple[str, int]]:
    """Return the hooks that ran for a job, in order, with the size of the dead set at that time."""
    lines = [line.decode().split() for line in cast("Any", client.lrange("app:hooks", 0, -1))]
    return [(name, int(size)) for name, of, size in lines if of == jid]


def counted(client: redis.Redis, name: str) -> int:
    return int(cast("bytes | None", client.get(f"stat:{name}")) or 0)


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
