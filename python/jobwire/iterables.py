"""Sources of items for iterable jobs: sequences, files, database rows; each item with its cursor.

    @app.iterable()
    def import_users(cursor: Cursor, path: str) -> Iterator[object]:
        for row, at in over_csv(cursor, path):
            yield at  # the job may stop here, and resume with this row
            import_user(row)

Each function begins at `cursor.value` and reports its progress through the cursor. A job can use
only one of them. For several sources, or for other kinds of items, write a loop that yields a JSON
value from which it can resume.
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
"""A cursor: the value to yield before the work on its item."""


def over_sequence(cursor: Cursor, items: Sequence[T]) -> Iterator[tuple[T, int]]:
    """Iterate over a list, tuple or range that does not change. The cursor is the index."""
    for index in range(_index(cursor), len(items)):
        cursor.track(index, len(items))
        yield items[index], index


def over_iterable(
    cursor: Cursor, items: Iterable[T], *, total: int | None = None
) -> Iterator[tuple[T, int]]:
    """Iterate over an iterable that gives the same items in the same order each time.

    The cursor is the index. Resuming produces and skips all items before it. If that takes long,
    write a loop with a better cursor.
    """
    start = _index(cursor)
    for index, item in enumerate(itertools.islice(items, start, None), start):
        cursor.track(index, total)
        yield item, index


def over_lines(
    cursor: Cursor, path: str | os.PathLike[str], *, encoding: str = "utf-8"
) -> Iterator[tuple[str, int]]:
    r"""Iterate over the lines of a file, without line ends (`\n` or `\r\n`).

    The cursor is the byte offset of the line, so a job resumes at once even in a huge file. The
    progress is also in bytes. Other programs may append lines to the file, but must not change it
    in other ways.
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
    """Iterate over the rows of a CSV file, as dicts by the column names in its first row.

    The cursor is the number of the row, where 0 is the first row after the names. Sidekiq's own
    jobs over CSV files use the same numbers. `options` go to `csv.DictReader`.
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
    """Iterate over the rows of a table by their keys, page by page.

        def fetch(start: int | None, limit: int) -> list[Row]:
            sql = "SELECT * FROM users WHERE id >= ? ORDER BY id LIMIT ?"
            return database.execute(sql, (start or 0, limit)).fetchall()

        for row, at in over_rows(cursor, fetch, key=lambda row: row["id"]): ...

    The cursor is the key, as in Sidekiq's own jobs over records.

    Args:
        cursor: The cursor of the job.
        fetch: `(start, limit) -> rows`. Returns at most `limit` rows whose key is `start` or
            greater, in the order of their keys; from the first row if `start` is None.
        key: Returns the key of a row: unique, and a JSON value.
        page: Number of rows to fetch at a time.
        total: Total number of rows, if known.

    Raises:
        ValueError: `fetch` returned rows before `start`, or not in order.
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
    """Iterate over the rows of a table in an async job; see `over_rows`."""
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
    """Group the items of one of the functions above; the cursor is that of the first item.

    for rows, at in in_batches(cursor, over_csv(cursor, path), 100): ...
    """
    if size < 1:
        raise ValueError(f"size is {size}; a batch has at least 1 item")
    source = iter(pairs)
    for first, at in source:
        done, total = cursor.done, cursor.total
        batch = [first, *(item for item, _ in itertools.islice(source, size - 1))]
        cursor.track(done, total)  # reading the batch has moved the progress to its last item
        yield batch, at


def _index(cursor: Cursor) -> int:
    value = cursor.value
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise ValueError(
            f"the cursor is {value!r}, which is not an index; a job can iterate over one source "
            "only, and its source must not change to another kind while jobs are incomplete"
        )
    return value


def _known(cursor: Cursor, total: int | None) -> int | None:
    return cursor.total if total is None else total


def _next(start: At, last: At, first: At) -> At:
    """Return the key at which the next page begins; it must come after this page's."""
    if last in (start, first):
        raise ValueError(
            f"no row follows the key {last!r}; `fetch` must return rows whose key is `start` or "
            "greater, in the order of their keys, and keys must be unique"
        )
    return last
