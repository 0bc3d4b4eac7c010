"""Output of `jobwire inspect`: tables for a terminal, tabs for a pipe, JSON for programs."""

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
from jobwire.protocol.visible import visible, visible_json

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


NARROWEST = 10  # terminal cells of a column that was shortened
GAP = 3  # terminal cells between two columns


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        name: Its heading.
        justify: The side on which its cells are aligned.
        style: The style of its cells.
        grow: True if it shares the width that the other columns leave.
        fold: True if a long cell takes several lines instead of being cut.
        spare: True if it is left out of a terminal that is too narrow.
    """

    name: str
    justify: Literal["left", "right"] = "left"
    style: str = ""
    grow: bool = False
    fold: bool = False
    spare: bool = False


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table to print.

    Attributes:
        title: Its title.
        columns: Its columns.
        items: Its items; they may be read from Redis while the table is printed.
        row: Returns the cells of an item, one for each column.
        record: Returns the value that `--json` prints for an item, one on each line.
        summary: Returns text to print below the table, on a terminal only; called after all rows.
        problems: Problems with the data, printed to standard error.
        empty: Text to print if there are no rows.
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
    """Print a sheet: as JSON, as a table on a terminal, or with tabs into a pipe."""
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
    """Show a sheet and update it every `every` seconds, until Ctrl-C.

    Raises:
        click.UsageError: Standard output is not a terminal.
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
    is_cut = limit is not None and len(rows) == limit and next(items, None) is not None
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
    if is_cut:
        parts.append(Text(f"the first {len(rows)}; --limit 0 shows all", style="dim"))
    if sheet.summary:
        parts.append(sheet.summary())
    return Group(*parts)


def _widths(
    columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int
) -> dict[int, int]:
    """Return the width of each column, by index, for the columns that fit into `width`."""
    wanted = {
        index: max(len(column.name), *(row[index].cell_len for row in rows), 1)
        for index, column in enumerate(columns)
    }

    def least(index: int) -> int:
        return min(wanted[index], NARROWEST) if columns[index].grow else wanted[index]

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
    """Return a value converted to the types of JSON."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, dict):
        return {_key(key): plain(member) for key, member in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return text(value) if isinstance(value, str | bytes) else value


def to_json(value: Any) -> str:
    """Return a value as one line of JSON."""
    return visible_json(json.dumps(plain(value), ensure_ascii=False, allow_nan=False, default=str))


def clean(value: str) -> str:
    """Return a text or a `name` as text that cannot control a terminal."""
    return visible(text(value))


def cut(value: str, length: int) -> str:
    """Return the beginning of a text, with an ellipsis if it was cut."""
    return value if len(value) <= length else value[: length - 1] + "…"


def duration(seconds: float) -> str:
    """Return a time span for people to read: `45s`, `12m 00s`, `3h 20m`, `5d 4h`."""
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
    """Return an epoch second relative to now: `3m 00s ago`, `in 2h 00m`."""
    if at is None:
        return "-"
    return f"in {duration(at - now)}" if at > now else f"{duration(now - at)} ago"


def _key(key: object) -> str:
    return key if isinstance(key, str) else str(key)
