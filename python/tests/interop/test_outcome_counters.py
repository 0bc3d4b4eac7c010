"""Counters that Sidekiq writes for each outcome of a job: the rows of the table of STAT-1."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from typing import Any, cast

import pytest
import redis

from harness.servers import wait_until
from tests.interop.driver import Driver
from tests.interop.sidekiq import RealSidekiq, results, started

pytestmark = pytest.mark.interop

FIVE_YEARS = 157_680_000  # seconds
Prepare = Callable[[Driver, redis.Redis, int], None]


def done(driver: Driver, client: redis.Redis, generation: int) -> None:
    driver.perform_async("EchoJob")
    driver.push({"class": "EchoJob", "args": [], "skip": True, "retry": True})


def raised(driver: Driver, client: redis.Redis, generation: int) -> None:
    driver.perform_async("FailJob")
    driver.perform_async("FailToDeadJob")
    driver.perform_async("FailWithoutRetryJob")
    driver.perform_async("FailForgottenJob")
    if generation > 6:
        driver.perform_async("RetryInJob", "discard")
        driver.perform_async("RetryInJob", "kill")


def unknown(driver: Driver, client: redis.Redis, generation: int) -> None:
    driver.push({"class": "NoSuchJob", "args": [], "retry": True})
    driver.push({"class": "NoSuchJob", "args": [], "retry": 0})
    driver.push({"class": "NoSuchJob", "args": [], "retry": False})


def unreadable(driver: Driver, client: redis.Redis, generation: int) -> None:
    client.lpush("queue:default", b'{"class":"EchoJob"', b"")


EXPECTED: dict[str, tuple[Prepare, int, int, dict[str, int]]] = {
    "done": (done, 2, 0, {"EchoJob|p": 2}),
    "raised": (
        raised,
        6,
        6,
        {
            f"{name}|{counter}": 2 if name == "RetryInJob" else 1
            for name in (
                *("FailJob", "FailToDeadJob", "FailWithoutRetryJob", "FailForgottenJob"),
                "RetryInJob",
            )
            for counter in "pf"
        },
    ),
    "unknown": (unknown, 3, 3, {}),
    "unreadable": (unreadable, 0, 0, {}),
}


def measured(client: redis.Redis) -> dict[str, int]:
    """Return the counters of all minutes, without those of milliseconds."""
    totals: dict[str, int] = {}
    for key in cast("list[bytes]", client.keys("j|*:??")):
        for field, value in cast("dict[bytes, bytes]", client.hgetall(key)).items():
            if not field.endswith(b"|ms"):
                totals[field.decode()] = totals.get(field.decode(), 0) + int(value)
    return totals


@pytest.mark.parametrize("outcome", EXPECTED)
def test_a_row(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, outcome: str) -> None:
    """STAT-1, STAT-2, STAT-4, STAT-5, MET-7, MET-8, MET-12: after the worker has ended."""
    prepare, processed, failed, metrics = EXPECTED[outcome]
    prepare(driver, client, sidekiq.generation)
    if outcome == "raised" and sidekiq.generation == 6:
        processed, failed = 4, 4  # 6 has neither discard nor kill
    while client.llen("queue:default"):  # a stop puts back a job that has not begun
        with sidekiq.worker(poll=None) as worker:
            wait_until(lambda: not client.llen("queue:default"), 60, "all jobs")
            assert worker.stop() == 0
    for name, count in (("processed", processed), ("failed", failed)):
        assert int(cast("Any", client.get(f"stat:{name}")) or 0) == count, name
        days: Any = client.keys(f"stat:{name}:*")  # two, if a midnight of UTC came meanwhile
        assert sum(int(cast("Any", client.get(day))) for day in days) == count, days
        assert all(client.ttl(day) > FIVE_YEARS - 600 for day in days)
    if sidekiq.generation == 8:  # 7 writes no metrics at its end
        assert measured(client) == metrics


@pytest.mark.usefixtures("iterable_jobs")
def test_a_run_that_yields(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """STAT-3, ITER-14: it counts as failed, and in the metrics as a success."""
    jid = driver.perform_async("IterJob", 600, 0.05)
    with sidekiq.worker(poll=None) as worker:
        wait_until(lambda: client.llen(f"app:items:{jid}"), 60, "the first item")
        assert worker.stop() == 0
    assert client.mget("stat:processed", "stat:failed") == [b"1", b"1"]
    if sidekiq.generation == 8:
        assert measured(client) == {"IterJob|p": 1}


def test_a_job_that_is_aborted(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """RETRY-16, SIG-7: it counts as failed, and the process ends soon after its deadline."""
    jid = driver.perform_async("SleepJob", 60)
    with sidekiq.worker(poll=None, timeout=1, concurrency=1) as worker:
        wait_until(lambda: started(client) == [jid], 60, "the job's start")
        began = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert time.monotonic() - began < 11
    assert client.mget("stat:processed", "stat:failed") == [b"1", b"1"]
    assert results(client) == []
