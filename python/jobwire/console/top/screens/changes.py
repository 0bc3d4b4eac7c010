"""The changes of many jobs that this program does, with their progress."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import DataTable

from jobwire.console.ops.changes import Change
from jobwire.console.top.context import ScreenContext
from jobwire.console.top.data_screen import DataScreen
from jobwire.console.top.rows import Column, Row, Rows
from jobwire.console.top.screens.bulk import ChangeView, change_line
from jobwire.console.top.styled_text import Cell, shown
from jobwire.inspect.formats import ago

__all__ = ["ChangeList"]


class ChangeList(DataScreen[list[Change]]):
    """The changes of this program, the newest first.

    Args:
        context: The parts that all screens share.
    """

    def __init__(self, context: ScreenContext) -> None:
        super().__init__(context, "changes")
        self._changes: dict[str, Change] = {}

    def body(self) -> ComposeResult:
        """Yield the table."""
        yield Rows(
            Column("began", 12, right=True),
            Column("action", 12),
            Column("progress", 44),
            Column("target", 0),
        )

    def read_data(self) -> list[Change]:
        """Return the changes."""
        return self.context.changes.all()

    def show_data(self, data: list[Change]) -> None:
        """Show them."""
        now = self.context.clock()
        self._changes = {change.id: change for change in data}
        rows = [
            Row(
                change.id,
                (
                    ago(change.at, now),
                    Cell(change.act, "name"),
                    shown(change_line(change)),
                    shown(change.target),
                ),
            )
            for change in data
        ]
        self.query_one(Rows).fill(rows)
        line = "changes of many jobs; they end with this program, after their batch"
        self.say(line if rows else "no change of many jobs was started here")

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the progress of one change."""
        change = self._changes.get(self.query_one(Rows).current or "")
        if change is not None:
            self.app.push_screen(ChangeView(self.context, change))
