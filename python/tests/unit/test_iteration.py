"""jobwire.protocol.iteration: foreign states, and cursors that job code yields."""

from __future__ import annotations

import math
from datetime import date
from typing import Any

import pytest

from jobwire.protocol.iteration import Cursor, State
from tests.rows import over


@over(
    ("fields", "state"),
    [
        ({}, State()),
        ({b"ex": b"1", b"c": b"null", b"rt": b"0"}, State(1)),
        ({b"ex": b"2", b"c": b'{"a":1}', b"rt": b"5.5"}, State(2, b'{"a":1}', 5.5)),
        ({b"cancelled": b"1786960000"}, State(cancelled=1_786_960_000)),
        ({b"cancelled": b""}, State(cancelled=0)),
        ({b"ex": b"x", b"c": b"", b"rt": b"NaN", b"new": b"?"}, State()),
        ({b"rt": b"inf", b"jw_done": b"-", b"jw_total": b"-"}, State()),
        ({b"c": b"7", b"jw_done": b"7", b"jw_total": b"9"}, State(0, b"7", done=7, total=9)),
    ],
)
def test_reading_a_state(fields: dict[bytes, bytes], state: State) -> None:
    """ITER-1, ITER-7, ITER-8: a missing `c` is null, and invalid fields count as absent."""
    assert State.read(fields) == state


@over("value", [None, 0, -1, 2**70, "ü", 1.5, True, [1, None], {"id": [{}]}])
def test_a_cursor_comes_back(value: Any) -> None:
    """ITER-1: any JSON value."""
    cursor = Cursor()
    cursor.reach(value)
    again = Cursor(cursor.state(ran=1.0))
    assert (again.value, type(again.value)) == (value, type(value))
    assert (again.executions, again.resumed, again.runtime) == (2, True, 1.0)


@over(
    ("value", "problem"),
    [
        ((1, 2), r"cursor \(1, 2\): cursor: \(1, 2\) is tuple, for which JSON has no type"),
        (math.nan, "nan has no JSON form"),
        ({"at": date(2026, 1, 1)}, r"cursor\['at'\]: .* is date"),
        ({1: 2}, "keys must be str"),
        ("\ud800", "lone surrogate"),
        (b"x", "is bytes"),
    ],
)
def test_what_is_no_cursor(value: Any, problem: str) -> None:
    """ITER-1: it is refused at once, not when a state is saved."""
    with pytest.raises(TypeError, match=problem):
        Cursor().reach(value)


def test_a_cursor_that_is_changed_afterwards() -> None:
    """ITER-5: the value at the time of `yield` counts, otherwise an item would be skipped."""
    cursor, place = Cursor(), {"page": 1}
    cursor.reach(place)
    place["page"] = 2
    assert cursor.state(ran=0).cursor == b'{"page":1}'


def test_counting() -> None:
    """ITER-8: the items before the last `yield`, unless the job reports a number."""
    cursor = Cursor(State(1, b'"c"', done=2))
    for value in "cde":
        cursor.reach(value)
    assert (cursor.done, cursor.total) == (4, None)
    cursor.total = 10
    assert cursor.state(ran=0).total == 10
    cursor.track(7, 9)
    cursor.reach("f")
    assert (cursor.done, cursor.total) == (7, 9)
    assert repr(cursor) == "<Cursor 'f' done=7 total=9>"
