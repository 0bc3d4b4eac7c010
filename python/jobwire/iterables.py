"""What iterable jobs go through: sequences, files, rows of a database; each item with its cursor.

    @app.iterable()
    def import_users(cursor: Cursor, path: str) -> Iterator[object]:
        for row, at in over_csv(cursor, path):
            yield at  # may stop here, and begin again with this row
            import_user(row)

All begin at `cursor.value`, and say through the cursor how far they are. Give them the cursor of
a job for one of them only: with several sources, or with other items, write a loop of your own
that yields any value of JSON which tells it where to begin.
"""

from __future__ import annotations

import csv
import itertools
import os
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Sequence,
)
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from jobwire.protocol.iteration import Cursor

__all__ = [
    "aover_rows",
    "in_batches",
    "over_csv",
    "over_iterable",
    "over_lines",
    "over_rows",
    "over_sequence",
]

T = TypeVar("T")
At: TypeAlias = Any
"""A cursor: what to yield before the work on its item."""


def over_sequence(cursor: Cursor, items: Sequence[T]) -> Iterator[tuple[T, int]]:
    """Go through a list, tuple or range that is the same each time. The cursor is the index."""
    for index in range(_index(cursor), len(items)):
        cursor.track(index, len(items))
        yield items[index], index


def over_iterable(
    cursor: Cursor, items: Iterable[T], *, total: int | None = None
) -> Iterator[tuple[T, int]]:
    """Go through anything that gives the same items in the same order each time.

    The cursor is the index. Items before it are made and left out; where that takes long, look
    for a cursor of your own.
    """
    start = _index(cursor)
    for index, item in enumerate(itertools.islice(items, start, None), start):
        cursor.track(index, total)
        yield item, index


def over_lines(
    cursor: Cursor, path: str | os.PathLike[str], *, encoding: str = "utf-8"
) -> Iterator[tuple[str, int]]:
    r"""Go through the lines of a file, without their ends (`\n` or `\r\n`).

    The cursor is the offset of the line in bytes, so that going on in a huge file is immediate;
    progress is in bytes too. Lines may be added to the end meanwhile, nothing else may change.
    """
    with Path(path).open("rb") as file:
        offset = file.seek(_index(cursor))
        size = file.seek(0, os.SEEK_END)
        file.seek(offset)
        for line in file:
            cursor.track(offset, max(size, offset))
            at, offset = offset, offset + len(line)
            text = line.removesuffix(b"\n").removesuffix(b"\r")
            yield text.decode(encoding), at


def over_csv(
    cursor: Cursor,
    path: str | os.PathLike[str],
    *,
    encoding: str = "utf-8-sig",
    **options: Any,
) -> Iterator[tuple[dict[str, str], int]]:
    """Go through the rows of a CSV file as dicts by the names in its first row.

    The cursor is the number of the row, the first after the names being 0, as it is for
    Sidekiq's own jobs over CSV files. `options` are those of `csv.DictReader`.
    """
    with Path(path).open(newline="", encoding=encoding) as file:
        yield from over_iterable(cursor, csv.DictReader(file, **options))


def over_rows(
    cursor: Cursor,
    fetch: Callable[[Any, int], Sequence[T]],
    *,
    key: Callable[[T], At],
    page: int = 1000,
    total: int | None = None,
) -> Iterator[tuple[T, At]]:
    """Go through the rows of a table by their keys, a page at a time.

        def fetch(start: int | None, limit: int) -> list[Row]:
            sql = "SELECT * FROM users WHERE id >= ? ORDER BY id LIMIT ?"
            return database.execute(sql, (start or 0, limit)).fetchall()

        for row, at in over_rows(cursor, fetch, key=lambda row: row["id"]): ...

    The cursor is the key, as it is for Sidekiq's own jobs over records.

    Args:
        cursor: That of the job.
        fetch: `(start, limit) -> rows`: those whose key is `start` or greater, all if it is
            None, in the order of their keys, `limit` at most.
        key: Returns a row's key: unique, and a value of JSON.
        page: How many rows to fetch at a time.
        total: How many there are, if known.

    Raises:
        ValueError: `fetch` returns rows before `start`, or not in order.
    """
    start, done, total = cursor.value, cursor.done, _known(cursor, total)
    while True:
        rows = fetch(start, page + 1)
        for number, row in enumerate(rows[:page], done):
            cursor.track(number, total)
            yield row, key(row)
        if len(rows) <= page:
            return
        start, done = _next(start, key(rows[page]), key(rows[0])), done + page


async def aover_rows(
    cursor: Cursor,
    fetch: Callable[[Any, int], Awaitable[Sequence[T]]],
    *,
    key: Callable[[T], At],
    page: int = 1000,
    total: int | None = None,
) -> AsyncIterator[tuple[T, At]]:
    """Go through the rows of a table in an async job; see `over_rows`."""
    start, done, total = cursor.value, cursor.done, _known(cursor, total)
    while True:
        rows = await fetch(start, page + 1)
        for number, row in enumerate(rows[:page], done):
            cursor.track(number, total)
            yield row, key(row)
        if len(rows) <= page:
            return
        start, done = _next(start, key(rows[page]), key(rows[0])), done + page


def in_batches(
    cursor: Cursor, pairs: Iterable[tuple[T, At]], size: int
) -> Iterator[tuple[list[T], At]]:
    """Put up to `size` items of one of the above together; the cursor is that of the first.

    for rows, at in in_batches(cursor, over_csv(cursor, path), 100): ...
    """
    if size < 1:
        raise ValueError(f"size is {size}; a batch has at least 1 item")
    source = iter(pairs)
    for item, at in source:
        done, total = cursor.done, cursor.total
        batch = [item, *(more for more, _ in itertools.islice(source, size - 1))]
        cursor.track(done, total)  # it was the last item's by now
        yield batch, at


def _index(cursor: Cursor) -> int:
    value = cursor.value
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise ValueError(
            f"the cursor is {value!r}, which is no index; a job goes through one thing only, "
            "and must not change what it goes through while there are jobs that are not complete"
        )
    return value


def _known(cursor: Cursor, total: int | None) -> int | None:
    return cursor.total if total is None else total


def _next(start: At, last: At, first: At) -> At:
    """Return where the next page begins, if it is further on."""
    if last in (start, first):
        raise ValueError(
            f"rows do not go on after the key {last!r}; return those whose key is `start` or "
            "greater, in the order of their keys, which have to be unique"
        )
    return last
