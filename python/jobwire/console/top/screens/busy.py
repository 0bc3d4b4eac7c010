"""The processes, and the jobs that they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Static

from jobwire.console.ops.doctor import SILENT_S
from jobwire.console.ops.locate import JobLocation
from jobwire.console.ops.roles import Action
from jobwire.console.top.context import ScreenContext
from jobwire.console.top.data_screen import DataScreen, action_key
from jobwire.console.top.rows import Column, Row, Rows
from jobwire.console.top.screens.job import JobView
from jobwire.console.top.styled_text import Cell, Part, one_line, shown
from jobwire.inspect import ProcessInfo, Work
from jobwire.inspect.formats import ago, duration
from jobwire.text import counted

__all__ = ["Busy", "process_cells"]

PROCESSES = [
    Column("process", 30),
    Column("busy", 9, right=True),
    Column("state", 12),
    Column("beat", 10, right=True),
    Column("MiB", 7, right=True),
    Column("queues", 0),
    Column("version", 16, spare=True),
    Column("started", 14, right=True, spare=True),
]
JOBS = [
    Column("runs", 8, right=True),
    Column("class", 24),
    Column("arguments", 0),
    Column("progress", 24),
    Column("queue", 14),
    Column("process", 26, spare=True),
]
MAX_ROWS = 500  # rows
WORDS = {
    "quiet": ("Let it fetch no more", "will fetch no more"),
    "stop": ("Stop", "will stop"),
    "dump": ("Let it log the work of its threads", "will log the work of its threads"),
}


@dataclass(frozen=True, slots=True)
class BusyData:
    """The processes and the running jobs, read at the same time."""

    processes: list[ProcessInfo]
    works: list[Work]


class Busy(DataScreen[BusyData]):
    """Processes and running jobs.

    Args:
        context: The parts that all screens share.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        action_key("Q", "quiet", "Quiet"),
        action_key("S", "stop", "Stop"),
        action_key("D", "dump", "Log threads"),
        Binding("tab", "app.focus_next", "Other table"),
    ]

    def __init__(self, context: ScreenContext) -> None:
        super().__init__(context, "busy")
        self._works: dict[str, Work] = {}

    def body(self) -> ComposeResult:
        """Yield both tables."""
        yield Rows(*PROCESSES, opens=False, id="processes")
        yield Static("Running jobs", classes="name", markup=False)
        yield Rows(*JOBS, id="works")

    def read_data(self) -> BusyData:
        """Return both."""
        inspector = self.context.operations.inspector
        return BusyData(inspector.processes(), inspector.works())

    def show_data(self, data: BusyData) -> None:
        """Show both."""
        now = self.context.clock()
        self._works = {f"{one.identity} {one.thread}": one for one in data.works}
        processes = [
            Row(one.identity, process_cells(one, now)) for one in data.processes[:MAX_ROWS]
        ]
        self.query_one("#processes", Rows).fill(processes)
        works = [Row(key, _work_cells(one, now)) for key, one in [*self._works.items()][:MAX_ROWS]]
        self.query_one("#works", Rows).fill(works)
        busy = sum(process.busy for process in data.processes)
        slots = sum(process.concurrency for process in data.processes)
        line = f"{counted(len(data.processes), 'process')}, {busy:,} of {slots:,} slots busy"
        if len(data.processes) > MAX_ROWS or len(data.works) > MAX_ROWS:
            line += f"; the first {MAX_ROWS} of each are shown"
        self.say(line)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the page of a running job."""
        if event.data_table.id != "works":
            return
        one = self._works.get(self.query_one("#works", Rows).current or "")
        if one is not None:
            known = JobLocation("running", one.job, identity=one.identity, queue=one.queue)
            self.app.push_screen(JobView(self.context, self.tab, one.job.jid or "", known))

    async def perform(self, act: Action) -> None:
        """Send a signal to the process under the cursor."""
        identity = self.query_one("#processes", Rows).current
        if identity is None:
            self.warn("there is no process under the cursor")
            return
        question, done = WORDS[act]
        if not await self.confirmed(f"{question}: process {shown(identity, 80)}?"):
            return
        operations = self.context.operations
        sends = {"quiet": operations.quiet, "stop": operations.stop, "dump": operations.dump}

        def send() -> bool:
            sends[act](identity)
            return True

        if await self.attempt(send):
            self.tell(f"{identity} {done} at its next heartbeat")


def process_cells(one: ProcessInfo, now: float) -> tuple[Part, ...]:
    """Return the cells of a process."""
    silent = one.beat is None or now - one.beat > SILENT_S
    state = "silent" if silent else "quiet" if one.quiet else "embedded" if one.embedded else ""
    return (
        Cell(shown(one.identity, 60), "name"),
        f"{one.busy:,}/{one.concurrency:,}",
        Cell(state, "warn"),
        ago(one.beat, now) if one.beat is None else duration(max(now - one.beat, 0.0)),
        f"{one.rss / 1024:,.0f}",
        shown(", ".join(one.queues)),
        shown(one.version, 30),
        "-" if one.started_at is None else duration(max(now - one.started_at, 0.0)),
    )


def _work_cells(one: Work, now: float) -> tuple[Part, ...]:
    job = one.job
    return (
        "-" if one.run_at is None else duration(max(now - one.run_at, 0.0)),
        Cell(shown(job.display_class or "?", 60), "name"),
        shown(job.text) if job.problem else one_line(job.display_args),
        "" if one.progress is None else shown(one.progress.summary, 60),
        shown(one.queue, 40),
        shown(one.identity, 60),
    )
