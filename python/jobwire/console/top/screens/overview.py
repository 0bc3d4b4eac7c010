"""The first screen: executions, jobs that wait, and problems."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import DataTable, Static

from jobwire.console.ops.alerts import alerts
from jobwire.console.ops.operations import Operations
from jobwire.console.ops.roles import Action
from jobwire.console.top.context import ScreenContext
from jobwire.console.top.data_screen import DataScreen, action_key
from jobwire.console.top.dialogs import AskLine
from jobwire.console.top.rows import Row, Rows
from jobwire.console.top.screens.busy import PROCESSES, process_cells
from jobwire.console.top.screens.entries import Entries
from jobwire.console.top.screens.queues import COLUMNS, queue_cells
from jobwire.console.top.styled_text import Cell, Part, bar_chart, joined
from jobwire.inspect.entry import QUEUE
from jobwire.inspect.fleet import Fleet
from jobwire.inspect.formats import clean

__all__ = ["Overview"]

MAX_QUEUES = 50  # queues, those with the longest latency
MAX_PROCESSES = 50
MINUTES = 60
MINUTES_AGAIN_S = 15.0  # the counters by minute change slowly
MAX_ALERTS = 3
LABEL = 10


@dataclass(frozen=True, slots=True)
class OverviewData:
    """The numbers, read at the same time.

    Attributes:
        fleet: Queues, sets and processes.
        at: Monotonic time of the read.
        minutes: Executions and failures by minute, the oldest first.
    """

    fleet: Fleet
    at: float
    minutes: list[tuple[int, int]]


class Overview(DataScreen[OverviewData]):
    """Totals, throughput, queues by latency, processes.

    Args:
        context: The parts that all screens share.
    """

    BINDINGS: ClassVar[list[BindingType]] = [action_key("m", "mark_deploy", "Mark a deployment")]

    def __init__(self, context: ScreenContext) -> None:
        super().__init__(context, "overview")
        self._rates: deque[float] = deque(maxlen=400)
        self._before: OverviewData | None = None
        self._minutes: list[tuple[int, int]] = []
        self._minutes_at = -float("inf")

    def body(self) -> ComposeResult:
        """Yield the numbers, and tables of queues and processes."""
        yield Static(id="numbers", classes="fact", markup=False)
        yield Static("Queues, the longest latency first", classes="name", markup=False)
        yield Rows(*COLUMNS, id="late")
        yield Static("Processes", classes="name", markup=False)
        yield Rows(*PROCESSES, opens=False, id="processes")

    def read_data(self) -> OverviewData:
        """Return the numbers, in two round trips; those by minute less often."""
        operations = self.context.operations
        fleet, at = operations.inspector.fleet(), time.monotonic()
        if at - self._minutes_at >= MINUTES_AGAIN_S:
            self._minutes = _minutes(operations)
            self._minutes_at = at
        return OverviewData(fleet, at, self._minutes)

    def show_data(self, data: OverviewData) -> None:
        """Show the numbers."""
        before, self._before = self._before, data
        if before is not None and data.at > before.at:
            done = max(data.fleet.processed - before.fleet.processed, 0)
            self._rates.append(done / (data.at - before.at))
        self.query_one("#numbers", Static).update(joined(self._numbers(data)))
        late = sorted(
            data.fleet.queues, key=lambda queue: (-queue.latency, -queue.size, queue.name)
        )
        self.query_one("#late", Rows).fill(
            [Row(queue.name, queue_cells(queue)) for queue in late[:MAX_QUEUES]]
        )
        now = self.context.clock()
        processes = sorted(data.fleet.processes, key=lambda one: (-one.busy, one.identity))
        self.query_one("#processes", Rows).fill(
            [Row(one.identity, process_cells(one, now)) for one in processes[:MAX_PROCESSES]]
        )
        self.say(Cell("tab: other table", "dim"))

    def _numbers(self, data: OverviewData) -> Iterator[list[Part]]:
        fleet = data.fleet
        share = fleet.failed / fleet.processed if fleet.processed else 0.0
        busy = sum(process.busy for process in fleet.processes)
        slots = sum(process.concurrency for process in fleet.processes)
        sets = fleet.sets
        yield [
            *_fact("processed", fleet.processed),
            *_fact("failed", fleet.failed, "bad", f" ({share:.1%})"),
            "busy ",
            Cell(f"{busy:,}/{slots:,}", "head"),
            "  ",
            *_fact("processes", len(fleet.processes), "" if fleet.processes else "warn"),
        ]
        yield [
            *_fact("enqueued", fleet.enqueued),
            *_fact("scheduled", sets["scheduled"]),
            *_fact("retries", sets["retry"], "warn"),
            *_fact("dead", sets["dead"], "bad"),
            *_fact("unreadable", sets["unreadable"], "bad"),
        ]
        room = max(min(self.app.size.width - LABEL - 20, MINUTES), 10)
        rates = [*self._rates]
        rate = f"{rates[-1]:,.1f}/s" if rates else "…"
        yield [f"{'now':<{LABEL}}", Cell(bar_chart(rates, room).rjust(room), "good"), f"  {rate}"]
        counts = [count for count, _ in data.minutes]
        failed = sum(failures for _, failures in data.minutes)
        yield [
            f"{'last hour':<{LABEL}}",
            Cell(bar_chart(counts, room), "good"),
            f"  {sum(counts):,}, failed {failed:,}",
        ]
        for alert in [*alerts(fleet)][:MAX_ALERTS]:
            yield [Cell(clean(alert.text), "warn")]

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the jobs of a queue."""
        if event.data_table.id == "late":
            name = self.query_one("#late", Rows).current
            if name is not None:
                self.app.push_screen(Entries(self.context, self.tab, QUEUE + name))

    async def perform(self, act: Action) -> None:
        """Mark a deployment."""
        label = await self.app.push_screen_wait(
            AskLine("Label of the deployment", hint="such as a version, or a commit")
        )
        if not label:
            return
        marked = await self.attempt(lambda: self.context.operations.mark_deploy(label))
        if marked is not None:
            self.tell(f"marked {label}" if marked else "there is a mark within the last minute")


def _fact(name: str, number: int, style: str = "", more: str = "") -> list[Part]:
    return [f"{name} ", Cell(f"{number:,}{more}", style if number and style else "head"), "  "]


def _minutes(operations: Operations) -> list[tuple[int, int]]:
    """Return executions and failures by minute of the last hour, the oldest first."""
    activity = operations.inspector.activity(minutes=MINUTES)
    if not activity.jobs:  # perhaps Sidekiq 7 writes here, in keys of its own
        activity = operations.inspector.activity(minutes=MINUTES, generation=7)
    last = activity.ends_at // activity.step * activity.step
    found = []
    for back in reversed(range(MINUTES)):
        at = last - back * activity.step
        buckets = [job.series[at] for job in activity.jobs.values() if at in job.series]
        found.append((sum(one.count for one in buckets), sum(one.failed for one in buckets)))
    return found
