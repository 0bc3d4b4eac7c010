"""How findings are printed: tables for a terminal, tabs for a pipe, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal

import click
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from jobwire.inspect.reading import text

__all__ = [
    "Column",
    "Sheet",
    "ago",
    "clean",
    "console",
    "cut",
    "duration",
    "plain",
    "show",
    "to_json",
    "watch",
]


SMALLEST = 10  # cells of a column that had to give way
GAP = 3  # cells between two columns


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        name: Its head.
        justify: On which side it is even.
        style: Of its cells.
        grow: It shares the width that others leave.
        fold: It takes several lines rather than to be cut.
        spare: It is left out where there is no room.
    """

    name: str
    justify: Literal["left", "right"] = "left"
    style: str = ""
    grow: bool = False
    fold: bool = False
    spare: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """Something to print.

    Attributes:
        title: What it is.
        columns: Of its table.
        items: What there is, looked up while it is printed.
        row: Makes of an item its cells, as many as columns.
        record: Makes of an item what `--json` prints of it, one object a line.
        summary: Below the table, on a terminal only; called when all rows were printed.
        problems: What is wrong with the data, for standard error.
        empty: What to say without rows.
    """

    title: str
    columns: Sequence[Column]
    items: Iterable[Any]
    row: Callable[[Any], Sequence[str | Text]]
    record: Callable[[Any], Any] = lambda item: item
    summary: Callable[[], str | RenderableType] | None = None
    problems: Sequence[str] = field(default=())
    empty: str = "nothing"


def console() -> Console:
    """Return the console for standard output."""
    return Console(highlight=False, markup=False, emoji=False)


def show(sheet: Sheet, *, as_json: bool, limit: int | None = None) -> None:
    """Print a sheet, in the form that suits who reads it."""
    if as_json:
        for item in islice(sheet.items, limit):
            click.echo(to_json(sheet.record(item)))
    elif sys.stdout.isatty():
        out = console()
        out.print(_table(sheet, limit, out.width))
    else:
        click.echo("\t".join(column.name for column in sheet.columns))
        for item in islice(sheet.items, limit):
            click.echo("\t".join(str(cell) for cell in sheet.row(item)))
    for problem in sheet.problems:
        click.echo(f"jobwire: {clean(problem)}", err=True)


def watch(make: Callable[[], tuple[Sheet, int | None]], every: float) -> None:
    """Show a sheet anew every so many seconds, until somebody interrupts.

    Raises:
        click.UsageError: Standard output is no terminal.
    """
    import threading

    if not sys.stdout.isatty():
        raise click.UsageError("--watch needs a terminal; leave it out, or call again with --json")
    pause = threading.Event()
    with Live(console=console(), screen=True, auto_refresh=False) as live:
        try:
            while True:
                sheet, limit = make()
                room = max(live.console.height - 6, 3)
                table = _table(sheet, min(limit or room, room), live.console.width)
                live.update(
                    Group(table, Text(f"every {every:g} s; Ctrl-C ends", style="dim")), refresh=True
                )
                pause.wait(every)
        except KeyboardInterrupt:
            return


def _table(sheet: Sheet, limit: int | None, width: int) -> RenderableType:
    items = iter(sheet.items)
    rows = [
        [cell if isinstance(cell, Text) else Text(cell) for cell in sheet.row(item)]
        for item in islice(items, limit)
    ]
    more = limit is not None and len(rows) == limit and next(items, None) is not None
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    widths = _widths(sheet.columns, rows, width)
    for index, cells in widths.items():
        column = sheet.columns[index]
        table.add_column(
            column.name,
            justify=column.justify,
            style=column.style,
            header_style="bold",
            no_wrap=not column.fold,
            overflow="fold" if column.fold else "ellipsis",
            width=None if column.fold else cells,
        )
    for row in rows:
        table.add_row(*(row[index] for index in widths))
    parts: list[RenderableType] = [Text(sheet.title, style="bold cyan")]
    parts.append(table if rows else Text(f"  {sheet.empty}", style="dim"))
    if more:
        parts.append(Text(f"the first {len(rows)}; --limit 0 shows all", style="dim"))
    if sheet.summary:
        parts.append(sheet.summary())
    return Group(*parts)


def _widths(
    columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int
) -> dict[int, int]:
    """Return which columns there is room for, and how wide each is."""
    wanted = {
        index: max(len(column.name), *(row[index].cell_len for row in rows), 1)
        for index, column in enumerate(columns)
    }

    def least(index: int) -> int:
        return min(wanted[index], SMALLEST) if columns[index].grow else wanted[index]

    def room() -> int:
        return width - sum(least(index) + GAP for index in wanted)

    spare = [index for index in wanted if columns[index].spare]
    while room() < 0 and spare:
        del wanted[spare.pop()]
    left = room()
    growing = sorted((index for index in wanted if columns[index].grow), key=wanted.__getitem__)
    for position, index in enumerate(growing):
        smallest = least(index)
        share = max(left, 0) // (len(growing) - position)
        wanted[index] = min(wanted[index], smallest + share)
        left -= wanted[index] - smallest
    return wanted


def plain(value: Any) -> Any:
    """Return a value made of what JSON has."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {_key(key): plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return text(value) if isinstance(value, str | bytes) else value


def to_json(value: Any) -> str:
    """Return a value as one line of JSON."""
    return json.dumps(plain(value), ensure_ascii=False, allow_nan=False, default=str)


def clean(value: str) -> str:
    """Return text that cannot steer a terminal: what does not print is spelled out."""
    shown = text(value)
    if shown.isprintable():
        return shown
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in shown
    )


def cut(value: str, length: int) -> str:
    """Return the beginning of a text, with a sign where it was cut."""
    return value if len(value) <= length else value[: length - 1] + "…"


def duration(seconds: float) -> str:
    """Return a time span as people say it: `45s`, `12m`, `3h 20m`, `5d 4h`."""
    if not math.isfinite(seconds):
        return "∞"
    whole = int(abs(seconds))
    sign = "-" if seconds < 0 else ""
    if whole < 60:
        return f"{sign}{abs(seconds):.1f}s" if 0 < abs(seconds) < 10 else f"{sign}{whole}s"
    if whole < 3_600:
        return f"{sign}{whole // 60}m {whole % 60:02}s"
    if whole < 86_400:
        return f"{sign}{whole // 3_600}h {whole % 3_600 // 60:02}m"
    return f"{sign}{whole // 86_400:,}d {whole % 86_400 // 3_600}h"


def ago(at: float | None, now: float) -> str:
    """Return an epoch second as people say it: `3m ago`, `in 2h`."""
    if at is None:
        return "-"
    return f"in {duration(at - now)}" if at > now else f"{duration(now - at)} ago"


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(key)
