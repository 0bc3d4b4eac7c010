"""The journal: the actions of people, and undo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from jobwire.console.ops.journal import JournalEntry, joined
from jobwire.console.ops.roles import Action
from jobwire.console.top.context import ScreenContext
from jobwire.console.top.data_screen import DataScreen, action_key
from jobwire.console.top.rows import Column, Row, Rows
from jobwire.console.top.screens.bulk import ChangeView, undo_change
from jobwire.console.top.styled_text import Cell, shown
from jobwire.errors import JobwireError
from jobwire.inspect.formats import ago, clean, duration
from jobwire.text import counted

__all__ = ["Journal"]

PAGE_ROWS = 50  # entries


@dataclass(frozen=True, slots=True)
class JournalData:
    """Entries of the journal, and the ids of deletions that can be undone."""

    entries: list[JournalEntry]
    undoable: set[str]


class Journal(DataScreen[JournalData]):
    """The actions of people, newest first.

    Args:
        context: The parts that all screens share.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        action_key("u", "undo", "Undo"),
        Binding("n", "older", "Older"),
        Binding("p", "newest", "Newest"),
    ]

    def __init__(self, context: ScreenContext) -> None:
        super().__init__(context, "journal")
        self._entries: dict[str, JournalEntry] = {}
        self._undoable: set[str] = set()
        self._before: str | None = None

    def body(self) -> ComposeResult:
        """Yield the table."""
        yield Rows(
            Column("at", 14, right=True),
            Column("person", 18),
            Column("action", 12),
            Column("target", 0),
            Column("count", 9, right=True),
            Column("state", 8),
            Column("undo", 5),
            opens=False,
        )

    def read_data(self) -> JournalData:
        """Return one page."""
        operations = self.context.operations
        entries = operations.journal(limit=PAGE_ROWS, before=self._before)
        return JournalData(
            entries, operations.undoable([entry.undo for entry in entries if entry.undo])
        )

    def show_data(self, data: JournalData) -> None:
        """Show the page."""
        now = self.context.clock()
        self._entries = {entry.id: entry for entry in data.entries}
        self._undoable = data.undoable
        rows = [
            Row(
                entry.id,
                (
                    ago(entry.at, now),
                    Cell(shown(entry.person, 60), "name"),
                    shown(entry.act, 30),
                    shown(entry.target),
                    f"{entry.count:,}",
                    shown(entry.status, 10),
                    Cell("u" if self._can_undo(entry) else "", "good"),
                ),
            )
            for entry in joined(data.entries)
        ]
        self.query_one(Rows).fill(rows)
        self.say("no change" if not rows else "u: deletions that can be put back")

    def _can_undo(self, entry: JournalEntry) -> bool:
        return entry.act != "undo" and entry.undo in self._undoable

    def action_older(self) -> None:
        """Show older entries."""
        if len(self._entries) == PAGE_ROWS:
            self._before = [*self._entries][-1]
            self.action_read_again()

    def action_newest(self) -> None:
        """Show the newest entries."""
        self._before = None
        self.action_read_again()

    async def perform(self, act: Action) -> None:
        """Put back what the entry under the cursor deleted."""
        entry = self._entries.get(self.query_one(Rows).current or "")
        if entry is None or not self._can_undo(entry):
            self.warn("this entry has nothing to put back")
            return
        operations = self.context.operations
        record = await self.attempt(lambda: operations.undo_record(entry.undo))
        if record is None:
            self.warn(f"{entry.undo}: its 24 hours are over, or it was undone")
            return
        if not await self.confirmed(
            f"Put back {counted(record.size, 'job')} in {shown(record.place, 60)}?",
            f"Deleted by {clean(record.person)}.",
            f"This is possible for {duration(record.expires_in)} more.",
        ):
            return
        change = undo_change(self.context, entry.undo, clean(record.place))
        try:
            self.context.changes.start(change)
        except JobwireError as error:
            self.warn(str(error))
            return
        await self.app.push_screen_wait(ChangeView(self.context, change))
        self.action_read_again()
