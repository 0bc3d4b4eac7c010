"""Calls of scripts on a real server, round trip included: a figure is for a hundred jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from harness.servers import Server
from jobwire import Client
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.outcome import DONE, Outcome
from jobwire.protocol.promotion import promote_batch
from jobwire.protocol.reliable import (
    InFlightJob,
    fetch,
    read_fetched,
    script_done,
    script_fetch,
    script_finish,
)
from jobwire.protocol.wire import command, once
from jobwire.worker.outcome.outbox import Entry, Outbox

JOBS = 100
KEYS = Keys()
ME = "bench"
DAY = "2026-11-20"
Bench = Callable[[Callable[[], object], Callable[..., Any]], Any]


@pytest.fixture
def redis(server: Server) -> Iterator[SyncRedis]:
    """Return a connection of a process that holds its lease."""
    redis = SyncRedis(server.url)
    redis.run(once(command("HSET", KEYS.process(ME), "info", "{}")))
    yield redis
    redis.close()


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


@pytest.fixture
def measure(benchmark: Any) -> Bench:
    """Return a function that measures what comes after a preparation, many times."""

    def measured(prepare: Callable[[], object], work: Callable[..., Any]) -> Any:
        def setup() -> tuple[tuple[object], dict[str, Any]]:
            return (prepare(),), {}

        return benchmark.pedantic(work, setup=setup, rounds=100, warmup_rounds=3)

    return measured


def fill(client: Client) -> None:
    client.push_bulk("Nothing", [[number] for number in range(JOBS)])


_numbers = iter(range(1, 10**9, 1_000))


def take(redis: SyncRedis) -> Sequence[InFlightJob]:
    return redis.run(fetch(KEYS, ME, ["default"], count=JOBS, sequence=next(_numbers))).jobs


def held(client: Client, redis: SyncRedis) -> Sequence[InFlightJob]:
    fill(client)
    return take(redis)


def test_push_bulk(measure: Bench, client: Client) -> None:
    measure(lambda: None, lambda _: fill(client))


def test_fetch(measure: Bench, client: Client, redis: SyncRedis) -> None:
    assert len(measure(lambda: fill(client), lambda _: take(redis))) == JOBS


def test_done(measure: Bench, client: Client, redis: SyncRedis) -> None:
    def done(jobs: Sequence[InFlightJob]) -> Any:
        fields = [job.field for job in jobs]
        return redis.run(once(script_done(KEYS, ME, fields, failed=False, day=DAY)))

    assert measure(lambda: held(client, redis), done) == []


def test_retry(measure: Bench, client: Client, redis: SyncRedis) -> None:
    def retry(jobs: Sequence[InFlightJob]) -> Any:
        retries = [(job.field, Outcome("retry", job.text, 1e9, "failed")) for job in jobs]
        return redis.run(once(script_finish(KEYS, ME, retries, day=DAY)))

    assert measure(lambda: held(client, redis), retry) == []


def test_promote(measure: Bench, client: Client, redis: SyncRedis) -> None:
    def due() -> None:
        client.push_bulk("Nothing", [[number] for number in range(JOBS)], at=time.time() - 5)

    def promote(_: object) -> int:
        now = time.time()
        work = promote_batch(
            KEYS, KEYS.schedule, now=now, generation=8, dead_limits=DeadSetLimits(now)
        )
        return redis.run(work).moved

    assert measure(due, promote) == JOBS


def test_outcomes_and_fetch(measure: Bench, client: Client, redis: SyncRedis) -> None:
    """A worker under load: the outcomes of a hundred go out with the fetch of the next."""
    outbox = Outbox(
        *(redis, KEYS, ME),
        dead_limits=lambda: DeadSetLimits(time.time()),
        flush_log=lambda: None,
        retry_interval=1.0,
        on_failure=lambda: None,
    )
    jobs = held(client, redis)

    def exchange(_: object) -> int:
        nonlocal jobs
        for job in jobs:
            outbox.add(Entry(job, DONE))
        step = script_fetch(KEYS, ME, ["default"], count=JOBS, sequence=next(_numbers))
        jobs = read_fetched(outbox.send_with(step)()).jobs
        return len(jobs)

    assert measure(lambda: fill(client), exchange) == JOBS
