"""Typed arguments in a running worker. [EXEC-1]"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import msgspec
import pydantic
import pytest

from harness.servers import Server, wait_until
from jobwire import App, Cursor, InvalidArgument, InvalidJob, Job, current_job
from jobwire.active_job import Duration, GlobalID, Symbol
from tests.workers import running

ID = UUID("9f2c1b7a-4d3e-4f60-9182-93a4b5c6d7e8")


class Grade(Enum):
    FINE = "fine"
    POOR = "größe ☠"


@dataclass
class InDataclass:
    id: UUID
    at: datetime
    grade: Grade
    price: Decimal
    name: str | None = None


class InStruct(msgspec.Struct):
    day: date
    parts: list[InDataclass]
    grades: dict[str, Grade]


class InModel(pydantic.BaseModel):
    id: UUID
    at: datetime
    grades: list[Grade]
    prices: dict[str, Decimal]


@attrs.define
class InAttrs:
    day: date
    took: timedelta
    grade: Grade
    text: bytes


class InTuple(NamedTuple):
    day: date
    price: Decimal
    grade: Grade
    inner: InDataclass


def some_values(draw: random.Random) -> tuple[InDataclass, InStruct, InModel, InAttrs, InTuple]:
    """Return a value of each kind of model, with enums, dates, numbers and texts of any size."""

    def text() -> str:
        return "".join(
            chr(draw.choice([*range(1, 0x800), 0x1F600])) for _ in range(draw.randrange(9))
        )

    def price() -> Decimal:
        return Decimal(draw.randrange(-(10**20), 10**20)).scaleb(-draw.randrange(12))

    def day() -> date:
        return date.fromordinal(draw.randrange(1, date.max.toordinal()))

    def at() -> datetime:
        zone = timezone(timedelta(minutes=draw.randrange(-840, 841)))
        return datetime.fromtimestamp(draw.randrange(2**33) + draw.randrange(10**6) / 1e6, zone)

    def grade() -> Grade:
        return draw.choice(list(Grade))

    def one() -> InDataclass:
        name = draw.choice([None, text()])
        return InDataclass(UUID(int=draw.getrandbits(128)), at(), grade(), price(), name)

    few = range(draw.randrange(4))
    return (
        one(),
        InStruct(day(), [one() for _ in few], {text(): grade() for _ in few}),
        InModel(
            id=UUID(int=draw.getrandbits(128)),
            at=at(),
            grades=[grade() for _ in few],
            prices={text(): price() for _ in few},
        ),
        InAttrs(
            day(),
            timedelta(microseconds=draw.randrange(-(10**17), 10**17)),
            grade(),
            draw.randbytes(5),
        ),
        InTuple(day(), price(), grade(), one()),
    )


def test_every_kind_of_job_gets_the_types_of_its_parameters(server: Server) -> None:
    """EXEC-1: also its hooks; middleware and `current_job` see the payload."""
    app = App()
    got: dict[str, Any] = {}
    through: list[Any] = []

    @app.server_middleware.add
    def note(job: Job, call_next: Callable[[], Any]) -> Any:
        through.append(job.args)
        return call_next()

    @app.job
    def plain(order: UUID, price: Decimal) -> None:
        job = current_job()
        got["plain"] = order, price, job and job.args

    @app.job
    async def coroutine(order: UUID, *days: date) -> None:
        got["coroutine"] = order, days

    def complete(cursor: Cursor, orders: list[UUID]) -> None:
        got["complete"] = orders

    @app.iterable(on_complete=complete)
    def each(cursor: Cursor, orders: list[UUID]) -> Iterator[object]:
        for index in range(cursor.value or 0, len(orders)):
            yield index
            got["each"] = orders[index]

    day = date(2026, 1, 2)
    with running(app, server):
        plain.enqueue(ID, Decimal("1.50"))
        coroutine.enqueue(ID, day, day)
        each.enqueue([ID])
        wait_until(lambda: len(got) == 4, 60)
    assert got == {
        "plain": (ID, Decimal("1.50"), [str(ID), "1.50"]),
        "coroutine": (ID, (day, day)),
        "each": ID,
        "complete": [ID],
    }
    assert [str(ID), "2026-01-02", "2026-01-02"] in through


@pytest.mark.parametrize("kind", ["sync", "async", "iterable"])
def test_an_argument_that_does_not_fit_is_a_failure(
    server: Server, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """EXEC-1, RETRY-3: its error names parameter, value and rule, in one line of the log."""
    app = App()
    errors: list[tuple[BaseException, Any]] = []
    app.on_error(lambda job, error: errors.append((error, job.args)))

    if kind == "sync":

        @app.job(name="Charge")
        def charge(order: UUID) -> None: ...

    elif kind == "async":

        @app.job(name="Charge")
        async def acharge(order: UUID) -> None: ...

    else:

        @app.iterable(name="Charge")
        def charges(cursor: Cursor, order: UUID) -> Iterator[object]:
            yield 1

    client = server.client()
    payload = {"class": "Charge", "args": ["abc"], "jid": "a" * 24, "queue": "default"}
    client.lpush("queue:default", json.dumps({**payload, "retry": True}))
    with running(app, server):
        wait_until(lambda: client.zcard("retry") == 1 and errors, 60)
    [text] = client.zrange("retry", 0, -1)
    job = json.loads(text)
    assert job["args"] == ["abc"]
    assert job["error_class"] == "jobwire.errors.InvalidArgument"
    assert job["error_message"] == (
        "Charge: args[0]: 'abc' does not fit parameter 'order: UUID': Invalid UUID"
    )
    [(error, args)] = errors
    assert isinstance(error, InvalidArgument)
    assert args == ["abc"]
    assert "fail: jobwire.errors.InvalidArgument: Charge: args[0]" in caplog.text
    assert not any(record.exc_info for record in caplog.records)
    assert error.__suppress_context__


def test_active_jobs_of_every_kind(server: Server) -> None:
    """X-AJ-1, X-AJ-3, X-AJ-7, X-AJ-8, X-AJ-9: sync and async; also by the client and at a time."""
    app = App()
    got: dict[str, Any] = {}

    @app.active_job("SyncJob", queue="mailers")
    def sync(record: GlobalID, *, day: date) -> None:
        job = current_job()
        assert job is not None
        assert job.args[0]["provider_job_id"] == job.jid
        assert job.args[0]["queue_name"] == "mailers"
        got["sync"] = record.id, day

    @app.active_job("Async::Job")
    async def coroutine(options: dict[str, Any]) -> None:
        got[next(iter(options))] = options  # two of them can run at once

    with running(app, server, queues={"default": 0, "mailers": 0}):
        sync.enqueue(GlobalID("gid://shop/User/7"), day=date(2026, 1, 2))
        coroutine.enqueue({"plain": 1, Symbol("symbol"): timedelta(hours=1)})
        wait_until(lambda: len(got) == 2, 60)
        assert got["sync"] == ("7", date(2026, 1, 2))
        assert got["plain"]["symbol"] == Duration(3600, (("seconds", 3600),))
        app.client.push_active_job("Async::Job", [{"again": True}], at=timedelta(seconds=0))
        coroutine.enqueue_bulk([[{"bulk": True}]])
        wait_until(lambda: {"again", "bulk"} <= got.keys(), 60)


def test_active_jobs_are_refused_by_rule() -> None:
    """X-AJ-10, X-AJ-11, SEC-1: before anything is sent."""
    app = App("redis://127.0.0.1:1", generation=8)

    @app.active_job("OnlyJob")
    def only(value: object) -> None: ...

    for value, problem in (
        ({"_aj_symbol_keys": []}, "reserved by Active Job"),
        ({1: 2}, "key 1 is not a string or Symbol"),
        (datetime(2026, 1, 2), "has no time zone"),
        ({1, 2}, "JSON has no type"),
    ):
        with pytest.raises(InvalidJob, match=problem):
            only.enqueue(value)
    with pytest.raises(TypeError, match="OnlyJob: missing a required argument"):
        only.enqueue()  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="not a GlobalID; write gid://APP/MODEL/ID"):
        GlobalID("User/7")
    assert app.find({"class": "OnlyJob", "args": []}) is None


@pytest.mark.process
def test_400_values_of_each_kind_of_model_arrive_as_they_were(server: Server) -> None:
    """EXEC-1, PUSH-5: a dataclass, msgspec, pydantic, attrs and a named tuple; in one job each."""
    app = App()
    got: dict[tuple[str, int], Any] = {}

    def define(kind: type) -> Any:
        def take(number: int, value: Any) -> None:
            got[kind.__name__, number] = value

        take.__annotations__["value"] = kind
        return app.job(name=kind.__name__)(take)

    draw = random.Random(7)
    sent = [some_values(draw) for _ in range(400)]
    jobs = [define(type(value)) for value in sent[0]]
    with running(app, server, concurrency=5):
        for number, values in enumerate(sent):
            for job, value in zip(jobs, values, strict=True):
                job.enqueue(number, value)
        wait_until(lambda: len(got) == 2_000, 120)
    assert server.client().zcard("retry") == 0
    for number, values in enumerate(sent):
        for value in values:
            arrived = got[type(value).__name__, number]
            assert type(arrived) is type(value)
            assert arrived == value
