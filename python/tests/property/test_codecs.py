"""Typed arguments return from a payload as they were enqueued. [EXEC-1] [PUSH-5]"""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Generic, NamedTuple, Optional, TypeVar
from uuid import UUID

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from jobwire.application.parameters import Parameters
from jobwire.protocol.arguments import check_args
from jobwire.protocol.payload import encode

T = TypeVar("T")


class Suit(Enum):
    HEARTS = "h"
    SPADES = "s"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


@dataclass
class Line:
    article: UUID
    price: Decimal
    at: datetime | None = None


class Pair(NamedTuple):
    first: date
    second: bytes


class Box(msgspec.Struct, Generic[T]):
    content: T


texts = st.text(st.characters(codec="utf-8"), max_size=8)
zones = st.just(UTC) | st.integers(-23 * 60, 23 * 60).map(
    lambda minutes: timezone(timedelta(minutes=minutes))
)
decimals = st.decimals(allow_nan=False, allow_infinity=False)
datetimes = st.datetimes() | st.datetimes(timezones=zones)
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(),
    str: texts,
    bool: st.booleans(),
    UUID: st.uuids(),
    Decimal: decimals,
    date: st.dates(),
    datetime: datetimes,
    time: st.times(),
    timedelta: st.timedeltas(),
    bytes: st.binary(max_size=8),
    Suit: st.sampled_from(Suit),
    Level: st.sampled_from(Level),
    Line: st.builds(Line, st.uuids(), decimals, st.none() | datetimes),
    Pair: st.builds(Pair, st.dates(), st.binary(max_size=8)),
}
HASHABLE = [kind for kind in SCALARS if kind is not Line]
KEYS = [str, int, UUID, date, Suit]

TypeAndValues = tuple[Any, st.SearchStrategy[Any]]


def compound(inner: st.SearchStrategy[TypeAndValues]) -> st.SearchStrategy[TypeAndValues]:
    def few(values: st.SearchStrategy[Any]) -> Any:
        return st.lists(values, max_size=3)

    return st.one_of(
        inner.map(lambda one: (of(list, one[0]), few(one[1]))),
        inner.map(lambda one: (of(tuple, one[0], ...), few(one[1]).map(tuple))),
        inner.map(lambda one: (of(Optional, one[0]), st.none() | one[1])),
        inner.map(lambda one: (of(Box, one[0]), one[1].map(Box))),
        st.tuples(inner, inner).map(
            lambda two: (of(tuple, two[0][0], two[1][0]), st.tuples(two[0][1], two[1][1]))
        ),
        st.tuples(st.sampled_from(KEYS), inner).map(
            lambda two: (
                of(dict, two[0], two[1][0]),
                st.dictionaries(SCALARS[two[0]], two[1][1], max_size=3),
            )
        ),
    )


def of(generic: Any, *kinds: Any) -> Any:
    """Return a generic type of these types, which only the test knows."""
    return generic[kinds if len(kinds) > 1 else kinds[0]]


def scalars(kinds: list[Any]) -> st.SearchStrategy[TypeAndValues]:
    return st.sampled_from(kinds).map(lambda kind: (kind, SCALARS[kind]))


sets = st.sampled_from(HASHABLE).map(
    lambda kind: (of(set, kind), st.sets(SCALARS[kind], max_size=3))
)
types = st.recursive(scalars(list(SCALARS)) | sets, compound, max_leaves=4)
typed_values = types.flatmap(lambda one: st.tuples(st.just(one[0]), one[1]))


@given(first=typed_values, second=typed_values)
def test_typed_arguments_return_unchanged(first: tuple[Any, Any], second: tuple[Any, Any]) -> None:
    """The payload is plain JSON, whose values are accepted in place of the typed ones."""

    def job(a: Any, b: Any) -> None: ...

    job.__annotations__.update(a=first[0], b=second[0])
    parameters = Parameters("Job", job)
    values = [first[1], second[1]]
    wire = parameters.bind(values, {})
    assert check_args(wire) == wire
    received = json.loads(encode(wire))
    assert received == wire
    assert list(parameters.decode(received)) == values
    assert parameters.bind(received, {}) == wire


@given(wire=st.lists(st.recursive(st.none() | st.integers() | texts, st.lists), max_size=3))
def test_arguments_without_a_codec_are_not_touched(wire: list[Any]) -> None:
    """A payload of another writer may hold anything for them."""

    def job(a: int, b: str, c: list[int]) -> None: ...

    assert Parameters("Job", job).decode(wire) is wire
