"""The queues: size, latency, workers; pause and clear."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from jobwire.console.ops.roles import Action
from jobwire.console.top.context import ScreenContext
from jobwire.console.top.data_screen import DataScreen, action_key
from jobwire.console.top.dialogs import AskLine
from jobwire.console.top.rows import Column, Row, Rows
from jobwire.console.top.screens.entries import Entries
from jobwire.console.top.styled_text import Cell, Part, shown
from jobwire.inspect import QueueSummary
from jobwire.inspect.entry import QUEUE
from jobwire.inspect.formats import clean, duration
from jobwire.text import counted

__all__ = ["Queues", "queue_cells"]

MAX_ROWS = 500  # rows
COLUMNS = [
    Column("queue", 0),
    Column("jobs", 12, right=True),
    Column("latency", 10, right=True),
    Column("workers", 7, right=True),
    Column("state", 18),
]


class Queues(DataScreen[list[QueueSummary]]):
    """All registered queues.

    Args:
        context: The parts that all screens share.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        action_key("p", "pause", "Pause/resume"),
        action_key("C", "clear", "Clear"),
        Binding("slash", "filter", "Filter"),
        Binding("s", "sort", "Sort"),
    ]

    def __init__(self, context: ScreenContext) -> None:
        super().__init__(context, "queues")
        self._queues: dict[str, QueueSummary] = {}
        self._part = ""
        self._sorts = ("name", "latency", "size")

    def body(self) -> ComposeResult:
        """Yield the table."""
        yield Rows(*COLUMNS)

    def read_data(self) -> list[QueueSummary]:
        """Return the queues."""
        return self.context.operations.inspector.queues()

    def show_data(self, data: list[QueueSummary]) -> None:
        """Show the queues that match."""
        self._queues = {queue.name: queue for queue in data}
        self._show()

    def _show(self) -> None:
        order = self._sorts[0]
        found = [queue for queue in self._queues.values() if self._part in queue.name.casefold()]
        if order != "name":
            found.sort(key=lambda queue: -getattr(queue, order))
        self.query_one(Rows).fill(
            [Row(queue.name, queue_cells(queue)) for queue in found[:MAX_ROWS]]
        )
        line = f"{counted(len(found), 'queue')} by {order}"
        if self._part:
            line = f"{len(found):,} of {len(self._queues):,} queues with {clean(self._part)!r}"
        if found[MAX_ROWS:]:
            line += f"; the first {MAX_ROWS} are shown"
        problem = next((queue.problem for queue in found if queue.problem), None)
        self.say(line, *([Cell(f"   {shown(problem)}", "bad")] if problem else []))

    def _chosen(self) -> QueueSummary | None:
        return self._queues.get(self.query_one(Rows).current or "")

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the jobs of the queue."""
        if (queue := self._chosen()) is not None:
            self.app.push_screen(Entries(self.context, self.tab, QUEUE + queue.name))

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._sorts = (*self._sorts[1:], self._sorts[0])
        self._show()

    @work
    async def action_filter(self) -> None:
        """Ask for a part of the name."""
        part = await self.app.push_screen_wait(AskLine("Part of the name", value=self._part))
        if part is not None:
            self._part = part.casefold()
            self._show()

    async def perform(self, act: Action) -> None:
        """Pause, resume or clear the queue under the cursor."""
        queue = self._chosen()
        operations = self.context.operations
        if queue is None:
            self.warn("there is no queue under the cursor")
        elif act == "clear":
            if not await self.confirmed(
                f"Delete queue {shown(queue.name, 60)} with {queue.size:,} jobs, in one step?",
                "They can be put back for 24 hours.",
            ):
                return
            deleted = await self.attempt(lambda: operations.clear(QUEUE + queue.name))
            if deleted is not None:
                self.tell(f"deleted {deleted.count:,} jobs; undo in the journal")
        elif queue.paused:
            if await self.attempt(lambda: operations.unpause(queue.name)) is not None:
                self.tell(f"{queue.name}: resumed")
        elif await self.attempt(lambda: operations.pause(queue.name)) is not None:
            self.tell(f"{queue.name}: paused, for the workers of jobwire")


def queue_cells(queue: QueueSummary) -> tuple[Part, ...]:
    """Return the cells of a queue."""
    states = {"paused": queue.paused, "no worker": queue.abandoned, "problem": queue.problem}
    return (
        Cell(shown(queue.name, 80), "name"),
        f"{queue.size:,}",
        duration(queue.latency),
        f"{queue.workers:,}",
        Cell(", ".join(state for state, holds in states.items() if holds), "warn"),
    )
