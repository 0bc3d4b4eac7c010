"""A table whose rows have names, so that the cursor stays on its row while the data changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.coordinate import Coordinate
from textual.widgets import DataTable

from jobwire.console.top.styled_text import Cell, Drawn, Part, cells_wide, drawn

__all__ = ["Column", "Row", "Rows"]

NARROW = 110  # columns of a terminal, below which spare columns are left out
LEAST = 12  # columns of the terminal, for a column that grows


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        title: Its title.
        most: Maximum width; 0 for a column that takes what the others leave.
        right: True to align its cells to the right.
        spare: True to leave it out in a narrow terminal.
    """

    title: str
    most: int = 40
    right: bool = False
    spare: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row: its name, and a cell for each column, spare ones included."""

    key: str
    cells: tuple[Part, ...]


class Rows(DataTable[Drawn]):
    """A table of named rows.

    Args:
        *columns: Its columns; one of them may grow.
        opens: True if a row can be opened.
        id: Name of the widget.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "Open")]

    def __init__(self, *columns: Column, opens: bool = True, id: str | None = None) -> None:
        super().__init__(cursor_type="row", id=id)
        self._opens = opens
        self._columns_wanted = columns
        self._named: list[Row] = []
        self._fitted: list[int] = []
        self._visible: list[int] = []  # indexes of the columns that fit

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the key that opens a row, if rows cannot be opened."""
        if action == "select_cursor" and not self._opens:
            return False
        return super().check_action(action, parameters)

    @property
    def current(self) -> str | None:
        """Name of the row under the cursor, or None."""
        return self._named[self.cursor_row].key if self._valid(self.cursor_row) else None

    def texts(self) -> list[list[str]]:
        """Return the texts of all cells, as they are drawn."""
        return [[cell.plain for cell in self.get_row_at(at)] for at in range(self.row_count)]

    def fill(self, rows: Sequence[Row]) -> None:
        """Show these rows; the cursor stays on its row if that is still there."""
        before, kept = self._named, self.current
        at = self.cursor_row
        self._named = list(rows)
        if self._fit():
            self._draw_all()
        elif [row.key for row in before] == [row.key for row in rows]:
            self._draw_changed(before)
        else:
            self._draw_rows()
        if [row.key for row in before] != [row.key for row in rows]:
            found = next((index for index, row in enumerate(rows) if row.key == kept), at)
            top = self.scroll_offset.y
            self.move_cursor(row=min(found, max(len(rows) - 1, 0)), scroll=found != at)
            if found == at:
                self.scroll_to(y=top, animate=False, force=True)

    def on_resize(self, event: events.Resize) -> None:
        """Give the columns the widths that fit."""
        self._fitted = []
        if self._fit():
            at = self.cursor_row
            self._draw_all()
            self.move_cursor(row=at)

    def _fit(self) -> bool:
        """Compute the widths of the columns; True if they, or their number, have changed."""
        room = self.size.width or self.app.size.width
        wide = self.app.size.width >= NARROW
        shown = [at for at, column in enumerate(self._columns_wanted) if wide or not column.spare]
        needed = [self._needed(at) for at in shown]
        # A width that shrinks and grows with each read would make the columns jump.
        if shown == self._visible and len(self._fitted) == len(shown):
            needed = [max(pair) for pair in zip(needed, self._fitted, strict=True)]
        growing = [at for at, index in enumerate(shown) if not self._columns_wanted[index].most]
        padding = 2 * self.cell_padding * len(shown)
        if growing:
            others = sum(width for at, width in enumerate(needed) if at not in growing)
            needed[growing[0]] = max(room - padding - others - 1, LEAST)
        if shown == self._visible and needed == self._fitted:
            return False
        self._visible, self._fitted = shown, needed
        return True

    def _needed(self, at: int) -> int:
        column = self._columns_wanted[at]
        if not column.most:
            return 0
        texts = (_text(row.cells[at]) for row in self._named)
        widest = max(map(cells_wide, texts), default=0)
        return max(min(widest, column.most), len(column.title))

    def _draw_all(self) -> None:
        self.clear(columns=True)
        for at, width in zip(self._visible, self._fitted, strict=True):
            column = self._columns_wanted[at]
            self.add_column(drawn(column.title, right=column.right), width=width)
        self._draw_rows()

    def _draw_rows(self) -> None:
        self.clear()
        self.add_rows(self._cells(row) for row in self._named)

    def _draw_changed(self, before: Sequence[Row]) -> None:
        for number, (old, new) in enumerate(zip(before, self._named, strict=True)):
            if old == new:
                continue
            for position, at in enumerate(self._visible):
                if old.cells[at] != new.cells[at]:
                    cell = drawn(new.cells[at], right=self._columns_wanted[at].right)
                    self.update_cell_at(Coordinate(number, position), cell)

    def _cells(self, row: Row) -> list[Drawn]:
        return [drawn(row.cells[at], right=self._columns_wanted[at].right) for at in self._visible]

    def _valid(self, at: int) -> bool:
        return 0 <= at < len(self._named)


def _text(part: Part) -> str:
    return part.text if isinstance(part, Cell) else part
