"""Output of a table: a table for a terminal, tabs for a pipe, JSON for programs."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from itertools import islice
from types import ModuleType
from typing import TextIO

import click

from jobwire.cli.table import Styled, Table, exact, readable
from jobwire.inspect.formats import clean, to_json

__all__ = ["pretty", "progress_bar", "show", "watch"]


def show(table: Table, *, as_json: bool, limit: int | None = None) -> None:
    """Print a table: as JSON, as a table on a terminal, or with tabs into a pipe."""
    if as_json:
        for item in islice(table.items, limit):
            click.echo(to_json(table.record(item)))
    elif drawing := pretty(sys.stdout):
        drawing.show(table, limit)
    elif sys.stdout.isatty():
        _print_aligned(table, limit)
    else:
        kept = [index for index, column in enumerate(table.columns) if not column.chart]
        click.echo("\t".join(table.columns[index].name for index in kept))
        for item in islice(table.items, limit):
            cells = table.row(item)
            click.echo("\t".join(exact(cells[index]) for index in kept))
    for problem in table.problems:
        click.echo(f"jobwire: {clean(problem)}", err=True)


def watch(make: Callable[[], tuple[Table, int | None]], every: float) -> None:
    """Show a table and update it every `every` seconds, until Ctrl-C.

    Raises:
        click.UsageError: Standard output is not a terminal.
    """
    if not sys.stdout.isatty():
        raise click.UsageError("--watch needs a terminal; leave it out, or call again with --json")
    if drawing := pretty(sys.stdout):
        drawing.watch(make, every)
        return
    pause = threading.Event()
    try:
        while True:
            table, limit = make()
            click.clear()
            _print_aligned(table, limit)
            click.echo(f"every {every:g} s; Ctrl-C ends")
            pause.wait(every)
    except KeyboardInterrupt:
        return


@contextmanager
def progress_bar(verb: str, size: int = 0) -> Iterator[Callable[[int, int], None] | None]:
    """Draw a bar on standard error, if that is a terminal; the function takes done and total."""
    drawing = pretty(sys.stderr)
    if drawing is None:
        yield None
        return
    with drawing.progress(verb, size) as update:
        yield update


def _print_aligned(table: Table, limit: int | None) -> None:
    """Print a table as plain text in aligned columns, without a limit to their width."""
    items = iter(table.items)
    rows = [[readable(cell) for cell in table.row(item)] for item in islice(items, limit)]
    is_cut = limit is not None and len(rows) == limit and next(items, None) is not None
    click.echo(table.title)
    if not rows:
        click.echo(f"  {table.empty}")
    for line in _aligned(table, rows) if rows else ():
        click.echo(line)
    if is_cut:
        click.echo(f"the first {len(rows)}; --limit 0 shows all")
    if table.summary:
        parts = (part.text if isinstance(part, Styled) else part for part in table.summary())
        click.echo("".join(parts))


def _aligned(table: Table, rows: list[list[str]]) -> Iterator[str]:
    lines = [[column.name for column in table.columns], *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = [
            cell.rjust(width) if column.justify == "right" else cell.ljust(width)
            for cell, width, column in zip(line, widths, table.columns, strict=True)
        ]
        yield "  ".join(cells).rstrip()


def pretty(stream: TextIO) -> ModuleType | None:
    """Return `jobwire.cli.pretty` if `stream` is a terminal and rich is installed.

    None means plain text. rich is an extra, `jobwire[cli]`; no other function asks for it.
    """
    if not stream.isatty() or find_spec("rich") is None:
        return None
    from jobwire.cli import pretty

    return pretty
