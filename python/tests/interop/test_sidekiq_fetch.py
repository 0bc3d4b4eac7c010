"""The order in which real Sidekiq looks at its queues, as the server sees it."""

from __future__ import annotations

import time
from collections import Counter

import redis

from harness.servers import wait_until
from tests.interop.commands import commands
from tests.interop.driver import Driver
from tests.interop.sidekiq import RealSidekiq, open_gate, results, started

NAMES = ("first", "second", "third")
JOBS = 60


def orders(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, queues: list[str]
) -> list[tuple[str, ...]]:
    """Return the queues of each BRPOP of one worker, while it takes a number of jobs."""
    for number in range(JOBS):
        driver.perform_async("EchoJob", number, queue=NAMES[-1])
    with (
        commands(client) as seen,
        sidekiq.worker(queues=queues, concurrency=1),
    ):
        wait_until(lambda: len(results(client)) == JOBS, 60, "all jobs")
    fetches = [command for command in seen if command[0] == "BRPOP"]
    return [tuple(key.removeprefix("queue:") for key in keys) for _, *keys, _ in fetches]


def test_strict_order(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """[FETCH-2] Every fetch tries the queues in the order of the list."""
    assert set(orders(sidekiq, driver, client, [*NAMES])) == {NAMES}


def test_weighted_order(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """[FETCH-3] [FETCH-8] Each fetch draws again.

    Every queue is in it once, the heavy one mostly first.
    """
    drawn = orders(sidekiq, driver, client, ["first,8", "second,1", "third,1"])
    assert len(drawn) >= JOBS
    assert {tuple(sorted(order)) for order in drawn} == {NAMES}
    assert len(set(drawn)) > 1
    # 8 of 10 on average; below 5 of 10 once in 10 million runs.
    assert Counter(order[0] for order in drawn)["first"] > len(drawn) / 2


def test_an_idle_worker(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """[FETCH-10] [FETCH-11] One command in two seconds for each executor, and no delay."""
    with sidekiq.worker(concurrency=2, poll=None):
        with commands(client) as seen:
            time.sleep(5)  # the interval that is looked at
        fetches = [command for command in seen if command[0] == "BRPOP"]
        assert 0 < len(fetches) <= 2 * 4
        pushed = time.monotonic()
        driver.perform_async("EchoJob")
        wait_until(lambda: results(client), 60, "the job")
        assert time.monotonic() - pushed < 5


def test_no_job_waits_behind_another(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """[FETCH-12] A worker takes no job before one of its executors is idle."""
    driver.perform_async("GateJob", "g")
    for number in range(5):
        driver.perform_async("EchoJob", number)
    with sidekiq.worker(concurrency=1, poll=None):
        wait_until(lambda: started(client), 60, "the gate")
        assert client.llen("queue:default") == 5
        with sidekiq.worker(concurrency=1, poll=None):
            wait_until(lambda: len(results(client)) == 5, 60, "the jobs in another worker")
        open_gate(client, "g")
        wait_until(lambda: len(results(client)) == 6, 60, "the end")


def test_a_key_that_is_not_a_list(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """[FETCH-7] [FETCH-13] It stops the queues behind it; the log of 7 and 8 does not name it."""
    client.set("queue:broken", "not a list")
    driver.perform_async("EchoJob", queue="good")
    with sidekiq.worker(queues=["broken", "good"], concurrency=1, poll=None) as worker:
        wait_until(lambda: "WRONGTYPE" in worker.log(), 60, "the error")
        assert ("queue:broken" in worker.log()) is (sidekiq.generation == 6)
        assert results(client) == []
