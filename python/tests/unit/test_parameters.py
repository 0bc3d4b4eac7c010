"""Arguments of types that JSON does not have: annotations decide. [PUSH-5] [EXEC-1]"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NewType, TypedDict
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest

from jobwire import App, Cursor, InvalidArgument, InvalidJob, Job, current_job, testing
from jobwire.application.parameters import Parameters
from jobwire.testing import Jobs
from tests.rows import over

if TYPE_CHECKING:
    from fractions import Fraction

NOWHERE = "redis://127.0.0.1:1/0"  # a connection to it fails at once
ID = UUID("9f2c1b7a-4d3e-4f60-9182-93a4b5c6d7e8")
ID_TEXT = str(ID)
NOON = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


PARIS = ZoneInfo("Europe/Paris")
LOCAL_MEAN = datetime(1971, 5, 1, tzinfo=ZoneInfo("Africa/Monrovia"))  # -00:44:30


@dataclass
class Moment:
    at: datetime


class Meeting(pydantic.BaseModel):
    begins: list[datetime]


class Color(Enum):
    RED = "red"


@dataclass
class Line:
    article: UUID
    price: Decimal


class Order(msgspec.Struct):
    id: UUID
    lines: list[Line]


@attrs.define
class Address:
    since: date


class Customer(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    id: UUID
    born: date = pydantic.Field(alias="birthday")


class Point(NamedTuple):
    x: int
    y: int


class Row(TypedDict):
    day: date


class PlainRow(TypedDict, total=False):
    name: str
    parent: PlainRow


CustomerId = NewType("CustomerId", UUID)
Small = Annotated[int, msgspec.Meta(le=9)]


def make(function: Callable[..., Any], **options: Any) -> Any:
    return App(NOWHERE, generation=8).job(name="Job", **options)(function)


def parameters(annotation: Any) -> Parameters:
    def job(value: Any) -> None: ...

    job.__annotations__["value"] = annotation
    return Parameters("Job", job)


TRAVELLERS: list[tuple[Any, Any, Any]] = [
    (UUID, ID, ID_TEXT),
    (Decimal, Decimal("19.90"), "19.90"),
    (datetime, NOON, "2026-11-22T12:00:00Z"),
    (date, date(2026, 11, 22), "2026-11-22"),
    (time, time(12, 30), "12:30:00"),
    (timedelta, timedelta(minutes=90), "PT5400S"),
    (bytes, b"abc", "YWJj"),
    (Color, Color.RED, "red"),
    (tuple[int, str], (1, "a"), [1, "a"]),
    (tuple, (1, 2), [1, 2]),
    (set[int], {5}, [5]),
    (frozenset[str], frozenset("a"), ["a"]),
    (Sequence[int], [1, 2], [1, 2]),
    (Mapping[str, date], {"a": date(2026, 1, 2)}, {"a": "2026-01-02"}),
    (dict[int, str], {1: "a"}, {"1": "a"}),
    (list[UUID], [ID], [ID_TEXT]),
    (UUID | None, None, None),
    (UUID | int, 5, 5),
    (Line, Line(ID, Decimal("1.50")), {"article": ID_TEXT, "price": "1.50"}),
    (
        Order,
        Order(ID, [Line(ID, Decimal(2))]),
        {"id": ID_TEXT, "lines": [{"article": ID_TEXT, "price": "2"}]},
    ),
    (Address, Address(date(2026, 1, 2)), {"since": "2026-01-02"}),
    (
        Customer,
        Customer(id=ID, birthday=date(2000, 1, 2)),
        {"id": ID_TEXT, "birthday": "2000-01-02"},
    ),
    (list[Customer], [], []),
    (Customer | None, None, None),
    (Point, Point(1, 2), [1, 2]),
    (Row, {"day": date(2026, 1, 2)}, {"day": "2026-01-02"}),
    (CustomerId, ID, ID_TEXT),
    (Small, 9, 9),
    ("UUID", ID, ID_TEXT),
    ("list[UUID] | None", [ID], [ID_TEXT]),
    (datetime, datetime(2026, 7, 1, tzinfo=PARIS), "2026-07-01T00:00:00+02:00"),
    (datetime, LOCAL_MEAN, "1971-05-01T00:44:30Z"),  # the same instant, and not 30 s later
    (dict[str, list[datetime]], {"a": [LOCAL_MEAN]}, {"a": ["1971-05-01T00:44:30Z"]}),
    (Moment, Moment(LOCAL_MEAN), {"at": "1971-05-01T00:44:30Z"}),
    (dict[datetime, int], {NOON: 1}, {"2026-11-22T12:00:00Z": 1}),
]


@over(("annotation", "value", "wire"), TRAVELLERS)
def test_annotated_values_travel(annotation: Any, value: Any, wire: Any) -> None:
    """EXEC-1: the payload has JSON values, and the function gets what was enqueued."""
    job = parameters(annotation)
    assert job.bind([value], {}) == [wire]
    [decoded] = job.decode([wire])
    assert decoded == value
    assert type(decoded) is type(value)
    # A value that already has the form of the payload is also accepted.
    assert job.bind([wire], {}) == [wire]


PLAIN = [
    *(str, int, float, bool, None, list, dict, Any, object, list[int], dict[str, Any]),
    *(dict[str, list[float | None]], int | None, Literal["a", 1], NewType("Name", str), PlainRow),
    *(Annotated[int, "a note"], Iterable[int], list[PlainRow], dict, "int", "list[PlainRow]"),
]


@over("annotation", PLAIN)
def test_types_of_json_cost_nothing(annotation: Any) -> None:
    """EXEC-1: no codec; the function of the job is called as it is, with any value."""
    job = parameters(annotation)
    values = [object()]
    assert job.decode(values) is values
    assert job.receiver(print) is print
    assert job.bind(values, {}) == values  # the client refuses it


@over(
    ("annotation", "value", "problem"),
    [
        (UUID, 5, "Expected `uuid`, got `int`"),
        (UUID, "abc", "Invalid UUID"),
        (Line, Line(ID, "x"), r"Invalid decimal string - at `\$\.price`"),  # type: ignore[arg-type]
        (tuple[int, int], (1, 2, 3), "length 2, got 3"),
        (Small, 10, "<= 9"),
        (UUID, object(), "object, which has no JSON form"),
        (Color, "blue", "Invalid enum value 'blue'"),
        (date, NOON, "Invalid RFC3339 encoded date"),
        (dict[datetime, int], {LOCAL_MEAN: 1}, r"with seconds.*convert it to UTC"),
        (
            time,
            time(1, tzinfo=timezone(timedelta(seconds=30))),
            r"01:00:00\+00:00:30 has an offset",
        ),
        (Meeting, Meeting(begins=[LOCAL_MEAN]), "1971-05-01 00:00:00-00:44:30 has an offset"),
        (
            list[datetime],
            [datetime.min.replace(tzinfo=timezone(timedelta(seconds=30)))],
            "date value out of range",
        ),
        (Customer, {"id": ID_TEXT, "birthday": "x"}, "birthday: Input should be a valid date"),
    ],
)
def test_a_value_that_does_not_fit_is_refused(annotation: Any, value: Any, problem: str) -> None:
    """PUSH-5: the error names job, value, parameter and rule; nothing is enqueued."""
    job = parameters(annotation)
    with pytest.raises(InvalidJob, match=problem) as caught:
        job.bind([value], {})
    assert caught.value.field == "args[0]"
    assert str(caught.value).startswith("Job: args[0]: ")
    assert "does not fit parameter 'value: " in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_inside_of_typed_values_must_be_json_too() -> None:
    """PAY-4: the checks of the client still hold."""
    with (
        testing.fake(make(price).app),
        pytest.raises(InvalidJob, match=r"args\[0\]\['a'\]") as caught,
    ):
        make(price).enqueue({"a": float("nan")})
    assert caught.value.rule == "PAY-4"


def price(prices: Mapping[str, float]) -> None: ...


def test_an_argument_from_redis_that_does_not_fit_fails() -> None:
    """EXEC-1: other writers do not know the annotations."""
    with pytest.raises(InvalidArgument) as caught:
        parameters(UUID).decode(["abc"])
    assert str(caught.value) == (
        "Job: args[0]: 'abc' does not fit parameter 'value: uuid.UUID': Invalid UUID"
    )


def test_positions() -> None:
    """EXEC-1: variadic parameters, defaults, and arguments by name."""

    def job(a: UUID, b: int = 1, c: date | None = None, *rest: UUID, flag: UUID = ID) -> None: ...

    def bound(*args: Any, **kwargs: Any) -> list[Any]:
        return made.bind(args, kwargs)

    made = Parameters("Job", job)
    day = date(2026, 1, 2)
    assert bound(ID) == [ID_TEXT]
    assert bound(ID, 2, day, ID, ID) == [ID_TEXT, 2, "2026-01-02", ID_TEXT, ID_TEXT]
    assert bound(ID, c=day) == [ID_TEXT, 1, "2026-01-02"]
    assert bound(a=ID) == [ID_TEXT]
    assert list(made.decode([ID_TEXT, "x", None, ID_TEXT])) == [ID, "x", None, ID]
    assert list(made.decode([])) == []  # the function itself says what is missing


def test_a_default_of_none_allows_none() -> None:
    def job(a: UUID = None, b: int = 1) -> None: ...  # type: ignore[assignment]  # noqa: RUF013

    assert Parameters("Job", job).bind([], {"b": 2}) == [None, 2]


def test_types_that_are_defined_later_are_found() -> None:
    """The annotations of this module are strings, which are read when they are needed."""

    def job(value: Later, other: UUID) -> None: ...

    made = Parameters("Job", job)
    try:
        globals()["Later"] = date
        assert made.bind([date(2026, 1, 2), ID], {}) == ["2026-01-02", ID_TEXT]
    finally:
        del globals()["Later"]


if TYPE_CHECKING:
    Later = date


def test_types_that_do_not_exist_count_as_no_annotation() -> None:
    """Only a type checker imports the type: JSON values pass, the error for others explains it."""

    def job(value: Fraction, other: UUID) -> None: ...

    made = Parameters("Job", job)
    assert made.bind([5, ID], {}) == [5, ID_TEXT]
    assert list(made.decode(["x", ID_TEXT])) == ["x", ID]
    assert made.bind([["a", {"b": 5}], ID], {}) == [["a", {"b": 5}], ID_TEXT]
    for value in (1 + 2j, [ID], {"a": [1 + 2j]}, {ID: 1}):
        with pytest.raises(
            InvalidJob, match=r"name 'Fraction' is not defined.*import the type outside"
        ):
            made.bind([value, ID], {})
    lenient = Parameters("Job", job, explain=False)
    assert lenient.bind([1 + 2j, ID], {}) == [1 + 2j, ID_TEXT]  # `strict_args` decides


def test_a_parameter_whose_values_cannot_travel_warns() -> None:
    """Once, at the definition, with the place of the function."""

    def job(value: int, session: Path) -> None: ...

    with pytest.warns(UserWarning, match=r"'Job'.*parameter 'session: Path'.*pass an id") as heard:
        made = make(job)
    assert [(each.filename, each.lineno) for each in heard] == [
        (__file__, job.__code__.co_firstlineno)
    ]
    with (
        testing.fake(made.app),
        pytest.raises(InvalidJob, match=r"args\[1\].*for which JSON has no type"),
    ):
        made.enqueue(1, Path())


def test_a_value_for_a_parameter_without_annotation_says_what_helps() -> None:
    """PUSH-5: an annotation, or an id; the client refuses what neither helps."""

    class Text(str):
        pass

    class Row:
        pass

    def job(value, *others, typed: int = 0): ...  # type: ignore[no-untyped-def]

    made = make(job)
    for value, advice in (
        (ID, "annotate the parameter ('value: UUID'), or send str, int"),
        (NOON, "annotate the parameter ('value: datetime'), or"),
        (Line(ID, Decimal(1)), "annotate the parameter ('value: Line'), or"),
        (Color.RED, "annotate the parameter ('value: Color'), or"),
        (Row(), "pass its id and load it in the job"),
    ):
        with testing.fake(made.app), pytest.raises(InvalidJob) as refused:
            made.enqueue(value)
        assert str(refused.value).startswith("Job: args[0]: ")
        assert f"for which JSON has no type; {advice}" in str(refused.value)
    hopeless: list[list[Any]] = [[Text()], [float("nan")], [1, (1, object())]]
    for args in hopeless:
        with testing.fake(made.app), pytest.raises(InvalidJob) as refused:
            made.enqueue(*args)
        assert "annotate" not in str(refused.value)
        assert "its id" not in str(refused.value)
    with testing.fake(made.app), pytest.raises(InvalidJob, match=r"args\[2\]: .*'others: UUID'"):
        made.enqueue(1, 2, ID)


def test_a_union_that_cannot_be_told_apart_warns() -> None:
    def job(value: UUID | str) -> None: ...

    with pytest.warns(UserWarning, match="more than one str-like type"):
        made = make(job)
    with testing.fake(made.app) as jobs:
        made.enqueue("x")
    assert [each.args for each in jobs] == [["x"]]


def test_a_parameter_that_may_be_left_out_does_not_warn() -> None:
    def job(value: int, session: Path | None = None, *more: Callable[[], int]) -> None: ...

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make(job)


class Shop:
    """An application whose jobs take typed arguments and note them."""

    def __init__(self) -> None:
        self.app = app = App(NOWHERE, generation=8)
        self.got: list[Any] = []
        self.seen: list[Any] = []

        @app.job(name="Charge")
        def charge(order: UUID, price: Decimal, note: str = "") -> None:
            job = current_job()
            assert job is not None
            self.seen.append(job.args)
            self.got.append((order, price, note))

        @app.job(name="Later")
        async def later(order: UUID) -> None:
            self.got.append(order)

        @app.iterable(
            name="Each",
            on_complete=lambda cursor, orders: self.got.append(("complete", orders)),
        )
        def each(cursor: Cursor, orders: list[UUID]) -> Iterator[object]:
            for index in range(cursor.value or 0, len(orders)):
                yield index
                self.got.append(orders[index])

        self.charge, self.later, self.each = charge, later, each


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_every_way_of_enqueueing(shop: Shop) -> None:
    """EXEC-1, SCHED-3, BULK-1: they all encode."""

    async def ahead() -> None:
        await shop.charge.aenqueue(ID, Decimal(4))
        await shop.charge.aenqueue_in(60, ID, Decimal(5))
        await shop.charge.aenqueue_at(4e9, ID, Decimal(6))
        await shop.charge.aenqueue_bulk([(ID, Decimal(7))])

    with testing.fake(shop.app) as jobs:
        shop.charge.enqueue(ID, price=Decimal(0))
        shop.charge.enqueue_in(60, ID, Decimal(1))
        shop.charge.enqueue_at(4e9, ID, Decimal(2))
        shop.charge.enqueue_bulk([(ID, Decimal(3))], at=4e9)
        asyncio.run(ahead())
        assert [job.args for job in jobs] == [[ID_TEXT, str(number)] for number in range(8)]
        jobs.drain()
    assert sorted(shop.got) == [(ID, Decimal(number), "") for number in range(8)]


def test_a_direct_call_takes_what_it_gets(shop: Shop) -> None:
    with pytest.raises(AssertionError):  # there is no current job, so the function was called
        shop.charge("x", 5)  # type: ignore[arg-type]
    shop.each([ID])
    assert shop.got == [ID, ("complete", [ID])]


def test_jobs_in_tests_travel_as_payloads(shop: Shop) -> None:
    """EXEC-1: the function gets the types, `current_job` and middleware see the payload."""
    through: list[Any] = []

    @shop.app.server_middleware.add
    def note(job: Job, call_next: Callable[[], Any]) -> Any:
        through.append(job.args)
        return call_next()

    with testing.inline(shop.app) as jobs:
        shop.charge.enqueue(ID, Decimal("1.50"))
        shop.later.enqueue(ID)
        shop.each.enqueue([ID, ID])
    assert shop.got == [(ID, Decimal("1.50"), ""), ID, ID, ID, ("complete", [ID, ID])]
    assert shop.seen == [[ID_TEXT, "1.50"]]
    assert through == [[ID_TEXT, "1.50"], [ID_TEXT], [[ID_TEXT, ID_TEXT]]]
    for args in ([ID, Decimal("1.50")], [ID_TEXT, "1.50"]):
        assert len(jobs.performed(shop.charge, args=args)) == 1
        assert len(jobs.performed("Charge", args=args)) == 1
    assert not jobs.performed(shop.charge, args=[ID, Decimal("1.51")])


@pytest.mark.parametrize("make_jobs", [testing.fake, testing.inline])
def test_a_wrong_argument_is_found_in_a_test(shop: Shop, make_jobs: Callable[[App], Any]) -> None:
    """PUSH-5: in a bulk, the error says which job."""
    with make_jobs(shop.app) as jobs:
        with pytest.raises(InvalidJob, match=r"Charge: args\[1\]: 'x' does not fit parameter"):
            shop.charge.enqueue(ID, "x")  # type: ignore[arg-type]
        with pytest.raises(InvalidJob, match=r"Charge: job 1: args\[0\]: 5 does not fit"):
            shop.charge.enqueue_bulk([(ID, Decimal(1)), (5, Decimal(1))])
        assert not isinstance(jobs, Jobs) or len(jobs) == 0
    assert shop.got == []


def test_options_keep_the_types(shop: Shop) -> None:
    with testing.fake(shop.app) as jobs:
        shop.charge.options(queue="low").enqueue(ID, Decimal(1))
        assert [(job.queue, job.args) for job in jobs] == [("low", [ID_TEXT, "1"])]
