"""The periodic jobs: line, next time; enable, disable, enqueue now and remove."""

from __future__ import annotations

from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from jobwire.console.ops.roles import Action
from jobwire.console.top.context import ScreenContext
from jobwire.console.top.data_screen import DataScreen, action_key
from jobwire.console.top.dialogs import AskLine
from jobwire.console.top.rows import Column, Row, Rows
from jobwire.console.top.styled_text import Cell, Part, shown
from jobwire.inspect import PeriodicJob
from jobwire.inspect.formats import clean, duration
from jobwire.text import counted

__all__ = ["Periodic", "periodic_cells"]

MAX_ROWS = 500  # rows
COLUMNS = [
    Column("name", 0),
    Column("line", 20),
    Column("class", 16),
    Column("state", 8),
    Column("next in", 10, right=True),
]


class Periodic(DataScreen[list[PeriodicJob]]):
    """All periodic jobs, those of Ruby included.

    Args:
        context: The parts that all screens share.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        action_key("p", "disable_periodic", "Disable/enable"),
        action_key("a", "enqueue_periodic", "Enqueue now"),
        action_key("x", "remove_periodic", "Remove"),
        Binding("slash", "filter", "Filter"),
    ]

    def __init__(self, context: ScreenContext) -> None:
        super().__init__(context, "periodic")
        self._jobs: dict[str, PeriodicJob] = {}
        self._part = ""

    def body(self) -> ComposeResult:
        """Yield the table."""
        yield Rows(*COLUMNS)

    def read_data(self) -> list[PeriodicJob]:
        """Return the entries."""
        return self.context.operations.periodic().all()

    def show_data(self, data: list[PeriodicJob]) -> None:
        """Show the entries that match."""
        self._jobs = {job.entry.member: job for job in data}
        self._show()

    def _show(self) -> None:
        found = [job for job in self._jobs.values() if self._part in job.entry.name.casefold()]
        now = self.context.clock()
        rows = [Row(job.entry.member, periodic_cells(job, now)) for job in found[:MAX_ROWS]]
        self.query_one(Rows).fill(rows)
        line = counted(len(found), "periodic job")
        if self._part:
            line = f"{len(found):,} of {len(self._jobs):,} with {clean(self._part)!r}"
        if found[MAX_ROWS:]:
            line += f"; the first {MAX_ROWS} are shown"
        chosen = self._chosen()
        problem = "" if chosen is None else chosen.problem
        self.say(line, *([Cell(f"   {shown(problem)}", "bad")] if problem else []))

    def _chosen(self) -> PeriodicJob | None:
        return self._jobs.get(self.query_one(Rows).current or "")

    @work
    async def action_filter(self) -> None:
        """Ask for a part of the name."""
        part = await self.app.push_screen_wait(AskLine("Part of the name", value=self._part))
        if part is not None:
            self._part = part.casefold()
            self._show()

    async def perform(self, act: Action) -> None:
        """Change the entry under the cursor, or enqueue its job."""
        job = self._chosen()
        if job is None:
            self.warn("there is no periodic job under the cursor")
            return
        name, operations = shown(job.entry.name, 60), self.context.operations.periodic()
        if act == "enqueue_periodic":
            jid = await self.attempt(lambda: operations.enqueue(job))
            if jid is not None:
                self.tell(f"{name}: enqueued as {jid}")
        elif act == "remove_periodic":
            if await self.confirmed(
                f"Remove the periodic job {name} with its history?",
                "A worker whose application defines it writes it again when it starts.",
            ) and await self.attempt(lambda: operations.remove(job)):
                self.tell(f"{name}: removed")
        else:
            enabled = job.entry.enabled
            change = operations.disable if enabled else operations.enable
            if await self.attempt(lambda: change(job)) is not None:
                self.tell(f"{name}: {'disabled' if enabled else 'enabled'}")


def periodic_cells(job: PeriodicJob, now: float) -> tuple[Part, ...]:
    """Return the cells of an entry."""
    state = Cell("enabled", "good") if job.entry.enabled else Cell("disabled", "warn")
    return (
        Cell(shown(job.entry.name, 80), "name"),
        shown(job.entry.cron, 60),
        shown(job.entry.job, 60),
        Cell("not read", "bad") if job.problem else state,
        "-" if job.next_at is None else duration(max(job.next_at - now, 0)),
    )
