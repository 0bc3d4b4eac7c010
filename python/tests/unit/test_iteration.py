"""Iterable jobs: their iterables, their types, and the state that they store."""

from __future__ import annotations

import asyncio
import inspect
import itertools
import math
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from jobwire.application.iterabletype import IterableOptions, define_iterable
from jobwire.errors import ConfigError
from jobwire.iterables import (
    aover_rows,
    in_batches,
    over_csv,
    over_iterable,
    over_lines,
    over_rows,
    over_sequence,
)
from jobwire.protocol.iteration import Cursor, State
from jobwire.protocol.normalize import Options
from jobwire.protocol.payload import encode
from tests.rows import over

LINES = b"one\nt\xc3\xbcwo\r\n\nlast"
CSV = '\ufeffname,note\nAda,"two\nlines"\nGrace,\n"x,y",z\n'.encode()
KEYS = [3, 5, 8, 9, 12]


def fetch(start: int | None, limit: int) -> list[tuple[int, str]]:
    return [(key, f"row {key}") for key in KEYS if start is None or key >= start][:limit]


async def afetch(start: int | None, limit: int) -> list[tuple[int, str]]:
    return fetch(start, limit)


def first(row: tuple[int, str]) -> int:
    return row[0]


def arows(cursor: Cursor) -> Iterator[Any]:
    async def collect() -> list[Any]:
        return [pair async for pair in aover_rows(cursor, afetch, key=first, page=2, total=5)]

    return iter(asyncio.run(collect()))


@pytest.fixture
def sources(tmp_path: Path) -> dict[str, Callable[[Cursor], Iterator[Any]]]:
    lines, table = tmp_path / "lines", tmp_path / "table"
    lines.write_bytes(LINES)
    table.write_bytes(CSV)
    return {
        "sequence": lambda cursor: over_sequence(cursor, "abcde"),
        "range": lambda cursor: over_sequence(cursor, range(4)),
        "iterable": lambda cursor: over_iterable(cursor, iter("abcde"), total=5),
        "lines": lambda cursor: over_lines(cursor, lines),
        "csv": lambda cursor: over_csv(cursor, str(table)),
        "rows": lambda cursor: over_rows(cursor, fetch, key=first, page=2, total=5),
        "rows in one page": lambda cursor: over_rows(cursor, fetch, key=first),
        "full pages": lambda cursor: over_rows(cursor, fetch, key=first, page=5),
        "async rows": arows,
    }


NAMES = ["sequence", "range", "iterable", "lines", "csv", "rows", "rows in one page"]
NAMES += ["full pages", "async rows"]


@pytest.mark.parametrize("name", NAMES)
def test_going_on_anywhere(name: str, sources: dict[str, Any]) -> None:
    """ITER-5: each cursor leads to its own item and all later ones."""
    whole = list(sources[name](Cursor()))
    assert len(whole) >= 3
    for index, (_, at) in enumerate(whole):
        again = Cursor(State(1, encode(at), done=index))
        assert list(sources[name](again)) == whole[index:]


def test_items(sources: dict[str, Any]) -> None:
    items = {name: [item for item, _ in sources[name](Cursor())] for name in NAMES}
    assert items["sequence"] == items["iterable"] == list("abcde")
    assert items["lines"] == ["one", "tüwo", "", "last"]
    assert items["csv"] == [
        {"name": "Ada", "note": "two\nlines"},
        {"name": "Grace", "note": ""},
        {"name": "x,y", "note": "z"},
    ]
    assert items["rows"] == items["async rows"] == fetch(None, 9)


@pytest.mark.parametrize(
    ("name", "progress"),
    [
        ("sequence", [(0, 5), (1, 5), (2, 5), (3, 5), (4, 5)]),
        ("lines", [(0, 16), (4, 16), (11, 16), (12, 16)]),
        ("csv", [(0, None), (1, None), (2, None)]),
        ("rows", [(0, 5), (1, 5), (2, 5), (3, 5), (4, 5)]),
    ],
)
def test_progress(name: str, progress: list[Any], sources: dict[str, Any]) -> None:
    """ITER-8: the progress is the part before each item."""
    cursor, seen = Cursor(), []
    for _, at in sources[name](cursor):
        cursor.reach(at)
        seen.append((cursor.done, cursor.total))
    assert seen == progress


@pytest.mark.parametrize("size", [1, 2, 5, 9])
@pytest.mark.parametrize("name", [name for name in NAMES if name != "async rows"])
def test_batches(name: str, size: int, sources: dict[str, Any]) -> None:
    """ITER-5: the cursor of a batch is that of its first item. ITER-8: and so is progress."""
    whole, cursor = list(sources[name](Cursor())), Cursor()
    pieces: list[Any] = []
    for batch, at in in_batches(cursor, sources[name](cursor), size):
        assert at == whole[len(pieces)][1]
        if name != "lines":
            assert cursor.done == len(pieces)
        pieces += batch
    assert pieces == [item for item, _ in whole]


def test_a_growing_file(tmp_path: Path) -> None:
    """Lines that are appended later are also read."""
    path = tmp_path / "log"
    path.write_text("a\nb\n")
    cursor, seen = Cursor(), []
    for line, at in over_lines(cursor, path):
        cursor.reach(at)
        seen.append(line)
        if line == "b":
            with path.open("a") as file:
                file.write("c\n")
    assert seen[:2] == ["a", "b"]
    assert cursor.total is not None
    assert cursor.done <= cursor.total


def test_rows_of_a_database() -> None:
    """The query of the documentation works while the table changes."""
    database = sqlite3.connect(":memory:")
    database.execute("CREATE TABLE users (id INTEGER PRIMARY KEY)")
    database.executemany("INSERT INTO users VALUES (?)", [(n,) for n in range(1, 8)])

    def users(start: int | None, limit: int) -> Sequence[tuple[int]]:
        sql = "SELECT id FROM users WHERE id >= ? ORDER BY id LIMIT ?"
        return database.execute(sql, (start or 0, limit)).fetchall()

    seen = []
    for (user,), at in over_rows(Cursor(), users, key=lambda row: row[0], page=2):
        assert user == at
        seen.append(user)
        database.execute("DELETE FROM users WHERE id = ?", (user,))
        if user == 4:
            database.execute("INSERT INTO users VALUES (99)")
    assert seen == [1, 2, 3, 4, 5, 6, 7, 99]
    database.close()


@pytest.mark.parametrize("rows", [[(3,)] * 5, [(8,), (9,), (3,)]])
def test_rows_that_do_not_go_on(rows: list[tuple[int]]) -> None:
    """Such rows would repeat without end."""
    endless = over_rows(
        Cursor(State(1, b"3")),
        lambda start, limit: rows[:limit],
        key=lambda row: row[0],
        page=2,
    )
    with pytest.raises(ValueError, match="no row follows the key 3; `fetch` must return"):
        list(itertools.islice(endless, 10))


@over("value", ["x", -1, 1.5, {"page": 1}, True])
def test_a_cursor_of_something_else(value: Any) -> None:
    cursor = Cursor(State(1, encode(value)))
    with pytest.raises(
        ValueError, match="which is not an index; a job can iterate over one source"
    ):
        next(over_sequence(cursor, [1]))


def test_an_empty_batch() -> None:
    with pytest.raises(ValueError, match="size is 0; a batch has at least 1 item"):
        next(in_batches(Cursor(), [], 0))


def rebuild(cursor: Cursor, shop: int, *, fast: bool = False) -> Iterator[object]:
    """Rebuild a shop."""
    yield shop


async def arebuild(cursor: Cursor, shop: int) -> AsyncIterator[object]:
    yield shop


async def coroutine(*_: Any) -> None: ...


def no_cursor(*, cursor: Cursor) -> Iterator[object]:
    yield 1


@pytest.mark.parametrize(
    ("function", "options", "problem"),
    [
        (len, {}, "len never yields; yield a cursor before each item, or define it"),
        (coroutine, {}, "coroutine never yields"),
        (no_cursor, {}, r"no parameter for its cursor; write def no_cursor\(cursor, \.\.\.\)"),
        (rebuild, {"max_runtime": 0}, "max_runtime is 0; give seconds above 0"),
        (rebuild, {"max_runtime": True}, "max_runtime is True"),
        (rebuild, {"max_runtime": math.nan}, "max_runtime is nan"),
        (rebuild, {"on_stop": 1}, "on_stop is 1; give a function"),
        (rebuild, {"on_stop": coroutine}, "on_stop is async but the job is not; make both"),
    ],
)
def test_what_is_no_iterable_job(function: Any, options: Any, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        define_iterable(function, options)


def test_options_are_told_apart() -> None:
    """Options of every job are passed on."""
    options = {"queue": "low", "max_runtime": 5, "on_stop": print, "around_iteration": len}
    spec, rest = define_iterable(rebuild, options)
    assert rest == {"queue": "low"}
    assert (spec.max_runtime, spec.callbacks) == (5, {"on_stop": print})
    assert spec.around is not None
    assert (spec.is_async, define_iterable(arebuild, {})[0].is_async) == (False, True)
    assert set(Options.__annotations__) < set(IterableOptions.__annotations__)


def test_here_and_now() -> None:
    """A direct call runs all items with callbacks, without Redis, with `enqueue`'s parameters."""
    log: list[Any] = []

    def job(cursor: Cursor, count: int, step: int = 1) -> Iterator[object]:
        for number in range(0, count, step):
            yield number
            log.append(number)

    spec, _ = define_iterable(job, {"on_complete": lambda *args: log.append(args[1:])})
    here = spec.here()
    here(5, step=2)
    assert log == [0, 2, 4, (5, 2)]
    assert list(inspect.signature(here).parameters) == ["count", "step"]
    assert (here.__name__, define_iterable(rebuild, {})[0].here().__doc__) == (
        "job",
        "Rebuild a shop.",
    )


def test_here_and_now_async() -> None:
    log: list[int] = []

    async def job(cursor: Cursor, count: int) -> AsyncIterator[object]:
        for number in range(count):
            yield number
            log.append(number)

    here = define_iterable(job, {})[0].here()
    asyncio.run(here(3))
    assert log == [0, 1, 2]
    assert inspect.iscoroutinefunction(here)
    assert not inspect.isasyncgenfunction(here)


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
