"""Typed use of jobwire, for the type checker alone: nothing here is ever run.

`mypy --strict` must accept this file. Where a line is wrong on purpose, the comment says which
error the checker has to find; an unused comment is also an error.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, assert_type
from uuid import UUID

from jobwire import (
    App,
    AsyncClient,
    Client,
    Cursor,
    Job,
    JobType,
    MaybeWritten,
    RedisRefused,
    RedisTrouble,
    Signature,
    TryAgain,
    current_job,
    testing,
)
from jobwire.protocol.iteration import Cancellation
from jobwire.protocol.normalize import JobFields


class Kind(Enum):
    CARD = "card"


app = App("redis://localhost:6379/0", generation="auto", strict_args="raise")
App(generation=6)  # type: ignore[arg-type]
App(strict_args="warn")
App(strict_args="yes")  # type: ignore[arg-type]
App(backtrace=20, retry=5, queue="shop", tags=["shop"], dead=False)
App(backtrace="all")  # type: ignore[arg-type]
App(qeue="shop")  # type: ignore[call-arg]


@app.job
def plain(count: int, label: str = "x") -> float:
    return count / 2


@app.job(name="Reports::Monthly", queue="low", retry=5, tags=["billing"], dead=False)
def report(year: int, *months: int) -> None: ...


@app.job(retry=False, redeliver=False, timeout=30)
def pay_once(account: int) -> None: ...


@app.job
def charge(order: UUID, price: Decimal, kind: Kind = Kind.CARD, *, dry: bool = False) -> None: ...


@app.job
async def fetch(url: str) -> bytes:
    return url.encode()


@app.job(retry="often")  # type: ignore[call-overload, untyped-decorator]
def wrong_option() -> None: ...


@app.job(queu="low")  # type: ignore[call-overload, untyped-decorator]
def unknown_option() -> None: ...


@app.iterable(name="TouchAll")
def touch_all(cursor: Cursor, shop: int) -> Iterator[object]:
    yield cursor.value


@app.iterable()  # type: ignore[arg-type]
def no_cursor(shop: int) -> Iterator[object]:
    yield shop


def definitions() -> None:
    iterable: JobType[[int], None] = touch_all
    assert_type(plain(1, "y"), float)
    plain("1")  # type: ignore[arg-type]
    same: JobType[[str], Any] = fetch
    other: JobType[[int], Any] = fetch  # type: ignore[assignment]
    assert_type(plain.name, str)
    assert_type(current_job(), Job | None)
    print_all(same, other, iterable)


def print_all(one: object, two: object, three: object) -> None: ...


def enqueue() -> None:
    assert_type(plain.enqueue(1), str | None)
    plain.enqueue(1, "y")
    plain.enqueue(1, label="y")
    plain.enqueue()  # type: ignore[call-arg]
    plain.enqueue("1")  # type: ignore[arg-type]
    plain.enqueue(1, 2)  # type: ignore[arg-type]
    plain.enqueue(1, "y", 3)  # type: ignore[call-arg]
    plain.enqueue(1, lable="y")  # type: ignore[call-arg]
    report.enqueue(2026, 1, 2, 3)
    report.enqueue(2026, "May")  # type: ignore[arg-type]
    charge.enqueue(UUID(int=1), Decimal("1.50"), kind=Kind.CARD)
    charge.enqueue("9f2c1b7a-4d3e-4f60-9182-93a4b5c6d7e8", Decimal(1))  # type: ignore[arg-type]
    charge.enqueue(UUID(int=1), 1.5)  # type: ignore[arg-type]
    charge.enqueue_in(60, UUID(int=1), Decimal(1))
    fetch.enqueue("https://example.org")
    fetch.enqueue(b"https://example.org")  # type: ignore[arg-type]


def enqueue_later() -> None:
    plain.enqueue_in(60, 1)
    plain.enqueue_in(0.5, 1, label="y")
    plain.enqueue_in(timedelta(minutes=1), 1)
    plain.enqueue_at(datetime.now(UTC), 1)
    plain.enqueue_at(1_795_192_067, 1)
    plain.enqueue_in("60", 1)  # type: ignore[arg-type]
    plain.enqueue_in(60)  # type: ignore[call-arg]
    plain.enqueue_at(datetime.now(UTC), "1")  # type: ignore[arg-type]


def enqueue_with_options() -> None:
    plain.options(queue="high", retry=False).enqueue(1)
    plain.options(queue="high").enqueue("1")  # type: ignore[arg-type]
    plain.options(queue=5)  # type: ignore[arg-type]
    plain.options(retry="often")  # type: ignore[arg-type]
    plain.options(queu="high")  # type: ignore[call-arg]


def enqueue_many() -> None:
    assert_type(plain.enqueue_bulk([(1,), (2, "y")]), list[str | None])
    plain.enqueue_bulk(([n] for n in range(5)), at=datetime.now(UTC))
    plain.enqueue_bulk([[1], [2]], at=[5.0, timedelta(1)])
    plain.enqueue_bulk([[1]], spread_interval=3_600)
    plain.enqueue_bulk([1, 2])  # type: ignore[list-item]
    plain.enqueue_bulk([[1]], spread_interval="1h")  # type: ignore[arg-type]


def signatures() -> None:
    assert_type(plain.s(1), Signature[float])
    assert_type(plain.s(1, label="y").enqueue(), str | None)
    plain.s("1")  # type: ignore[arg-type]
    plain.s()  # type: ignore[call-arg]
    plain.options(queue="low").s(1).enqueue_in(timedelta(1))


async def enqueue_from_asyncio() -> None:
    assert_type(await plain.aenqueue(1), str | None)
    await plain.aenqueue("1")  # type: ignore[arg-type]
    await fetch.aenqueue_in(timedelta(1), "https://example.org")
    await fetch.aenqueue_in(timedelta(1), 5)  # type: ignore[arg-type]
    await fetch.aenqueue_at(datetime.now(UTC), "https://example.org")
    await fetch.aenqueue_bulk([["https://example.org"]])
    assert_type(await fetch("https://example.org"), bytes)


def stop_fours(item: JobFields, call_next: Callable[[], JobFields | None]) -> JobFields | None:
    item["tags"] = ["checked"]
    return None if item["args"] == [4] else call_next()


async def later(
    item: JobFields, call_next: Callable[[], Awaitable[JobFields | None]]
) -> JobFields | None:
    return await call_next()


def not_middleware(item: JobFields) -> JobFields:
    return item


def clients() -> None:
    with Client(middleware=[stop_fours], namespace="app:", generation=8, timeout=1) as client:
        assert_type(client, Client)
        assert_type(client.push("HardJob", [1, "two"], queue="critical"), str | None)
        client.push("HardJob", (1,), at=datetime.now(UTC), jid="abc", fields={"jw_x": 1})
        client.push_in(60, "HardJob", [1], retry=None, backtrace=20)
        client.push_bulk("HardJob", [[1], [2]], at=[1.0, 2.0], tags=["a"])
        client.push(5)  # type: ignore[arg-type]
        client.push("HardJob", 5)  # type: ignore[arg-type]
        client.push("HardJob", queu="low")  # type: ignore[call-arg]
        client.push("HardJob", at="now")  # type: ignore[arg-type]
        assert_type(client.cancel("abc"), Cancellation)
    Client(middleware=[not_middleware])  # type: ignore[list-item]
    Client(generation="8")  # type: ignore[arg-type]


async def async_clients() -> None:
    async with AsyncClient("redis://localhost:6379/0") as client:
        assert_type(client, AsyncClient)
        assert_type(await client.push("HardJob", [1]), str | None)
        assert_type(await client.cancel("abc"), Cancellation)
        await client.push_in(timedelta(1), "HardJob")
        assert_type(await client.push_bulk("HardJob", [[1]]), list[str | None])
        await client.push(None)  # type: ignore[arg-type]


def failures(client: Client) -> None:
    try:
        client.push("HardJob")
    except MaybeWritten as error:
        assert_type(error.unsure, tuple[str, ...])
    except RedisRefused as error:
        assert_type(error.code, str)
    except RedisTrouble as error:
        assert_type(error.written, tuple[str, ...])


class Busy(TryAgain): ...


def time_it(job: Job, call_next: Callable[[], Any]) -> Any:
    assert_type(job.args, list[Any])
    assert_type(job.jid, str | None)
    assert_type(job.retry_count, int | None)
    return call_next()


App(server_middleware=[time_it], client_middleware=[stop_fours, later])
App(server_middleware=[not_middleware])  # type: ignore[list-item]


@plain.retry_in
def wait(job: Job, error: BaseException, count: int) -> float | None:
    return 60.0 * count if isinstance(error, Busy) else None


@plain.retry_in
def give_up(job: Job, error: BaseException, count: int) -> Literal["discard", "kill"]:
    return "discard" if count else "kill"


@plain.exhausted
def forget(job: Job, error: BaseException) -> Literal["discard"] | None:
    return "discard" if job.args == [4] else None


@app.on_death
@app.on_error
def report_failure(job: Job, error: BaseException) -> None: ...


@app.wrap
@contextmanager
def fresh(job: Job) -> Generator[None]:
    yield


@app.on("startup")
def open_pool() -> None: ...


@app.on("exit")
async def close_pool() -> None: ...


def hooks() -> None:
    assert_type(wait(Job(b"{}", {}, "q"), ValueError(), 0), float | None)
    assert_type(open_pool(), None)

    def swapped(error: BaseException, job: Job) -> None: ...
    def alone(job: Job) -> None: ...
    def generator(job: Job) -> Iterator[None]:
        yield

    app.on_error(swapped)  # type: ignore[type-var]
    app.on_error(alone)  # type: ignore[type-var]
    app.on_death(swapped)  # type: ignore[type-var]
    app.wrap(generator)  # type: ignore[type-var]
    app.wrap(outermost=True)(generator)  # type: ignore[type-var]
    app.on("startup")(alone)  # type: ignore[type-var]
    app.on("start")  # type: ignore[arg-type]
    plain.retry_in(report_failure)  # type: ignore[type-var]
    plain.exhausted(report_failure)
    plain.exhausted(wait)  # type: ignore[type-var]


def tests(app: App, hard: JobType[[int], None]) -> None:
    with testing.fake(app) as jobs:
        assert_type(jobs, testing.Jobs)
        assert_type(jobs.enqueued(hard, args=[1], at=None), list[testing.EnqueuedJob])
        assert_type(jobs.enqueued("HardJob", at=timedelta(1))[0].at, float | None)
        assert_type(jobs.drain(), int)
        jobs.enqueued(5)  # type: ignore[arg-type]
    with testing.real(app, concurrency=1) as worker:
        assert_type(worker.drain(due=True), int)
        assert_type(worker.errors[0], tuple[Job, BaseException])
