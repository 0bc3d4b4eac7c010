"""Drawing with rich: tables in colours, progress. The only module that imports it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import Progress
from rich.table import Table as RichTable
from rich.text import Text

from jobwire.cli.table import Cell, Column, Styled, Table, readable

__all__ = ["console", "draw", "progress", "show", "status", "watch"]

NARROWEST = 10  # terminal cells of a column that was shortened
GAP = 3  # terminal cells between two columns


def console() -> Console:
    """Return the console for standard output."""
    return Console(highlight=False, markup=False, emoji=False)


def show(table: Table, limit: int | None) -> None:
    """Print a table as a table in colours."""
    out = console()
    out.print(draw(table, limit, out.width))


def watch(make: Callable[[], tuple[Table, int | None]], every: float) -> None:
    """Show a table on the whole screen and update it, until Ctrl-C."""
    pause = threading.Event()
    with Live(console=console(), screen=True, auto_refresh=False) as live:
        try:
            while True:
                table, limit = make()
                room = max(live.console.height - 6, 3)
                drawn = draw(table, min(limit or room, room), live.console.width)
                live.update(
                    Group(drawn, Text(f"every {every:g} s; Ctrl-C ends", style="dim")), refresh=True
                )
                pause.wait(every)
        except KeyboardInterrupt:
            return


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int, int], None]]:
    """Draw a bar on standard error; the function takes the completed number and the total."""
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(title, total=total)
        yield lambda completed, total: bar.update(task, total=total, completed=completed)


@contextmanager
def status(title: str) -> Iterator[Callable[[str], None]]:
    """Show a changing line on standard error."""
    out = Console(stderr=True, highlight=False, markup=False)
    with out.status(title) as line:
        yield line.update


def draw(table: Table, limit: int | None, width: int) -> RenderableType:
    """Return a table as a table for a terminal of this width."""
    items = iter(table.items)
    rows = [[_text(cell) for cell in table.row(item)] for item in islice(items, limit)]
    is_cut = limit is not None and len(rows) == limit and next(items, None) is not None
    drawn = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    widths = _widths(table.columns, rows, width)
    for index, cells in widths.items():
        column = table.columns[index]
        drawn.add_column(
            column.name,
            justify=column.justify,
            style=column.style,
            header_style="bold",
            no_wrap=not column.fold,
            overflow="fold" if column.fold else "ellipsis",
            width=None if column.fold else cells,
        )
    for row in rows:
        drawn.add_row(*(row[index] for index in widths))
    parts: list[RenderableType] = [Text(table.title, style="bold cyan")]
    parts.append(drawn if rows else Text(f"  {table.empty}", style="dim"))
    if is_cut:
        parts.append(Text(f"the first {len(rows)}; --limit 0 shows all", style="dim"))
    if table.summary:
        parts.append(Text.assemble(*table.summary()))
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


def _text(cell: Cell) -> Text:
    return Text(readable(cell), style=cell.style if isinstance(cell, Styled) else "")
