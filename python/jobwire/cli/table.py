"""A table as a value, independent of the form in which it is printed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from jobwire.inspect.formats import ago, iso

__all__ = ["Cell", "Column", "Moment", "Styled", "Table", "exact", "readable"]


class Styled(NamedTuple):
    """A text with a style, such as `red`, which only a terminal shows."""

    text: str
    style: str


class Moment(NamedTuple):
    """A point in time: relative to `now` for people, absolute for programs.

    Attributes:
        at: Epoch seconds, or None if it is unknown.
        now: Epoch seconds.
        both: True to show people both forms.
    """

    at: float | None
    now: float
    both: bool = False


Cell: TypeAlias = str | Styled | Moment


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
        chart: True if its cells are drawings; it is left out of a pipe.
    """

    name: str
    justify: Literal["left", "right"] = "left"
    style: str = ""
    grow: bool = False
    fold: bool = False
    spare: bool = False
    chart: bool = False


@dataclass(frozen=True, slots=True)
class Table:
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
    row: Callable[[Any], Sequence[Cell]]
    record: Callable[[Any], Any] = lambda item: item
    summary: Callable[[], Sequence[str | Styled]] | None = None
    problems: Sequence[str] = field(default=())
    empty: str = "nothing"


def readable(cell: Cell) -> str:
    """Return the text of a cell for people."""
    if isinstance(cell, Moment):
        relative = ago(cell.at, cell.now)
        return relative if cell.at is None or not cell.both else f"{iso(cell.at)}, {relative}"
    return cell.text if isinstance(cell, Styled) else cell


def exact(cell: Cell) -> str:
    """Return the text of a cell for programs."""
    if isinstance(cell, Moment):
        return "-" if cell.at is None else iso(cell.at)
    return readable(cell)
