"""The search in all places: class, argument, error, job id."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Input

from jobwire.console.ops.locate import JobLocation
from jobwire.console.ops.paging import digest
from jobwire.console.ops.selection import Selection
from jobwire.console.top.context import ScreenContext
from jobwire.console.top.data_screen import DataScreen
from jobwire.console.top.filtering import HELP, parse
from jobwire.console.top.rows import Column, Row, Rows
from jobwire.console.top.scan import Found, scan
from jobwire.console.top.screens.entries import place_name
from jobwire.console.top.screens.job import JobView
from jobwire.console.top.styled_text import Cell, Part, one_line, shown
from jobwire.console.top.threads import in_thread, poster
from jobwire.errors import ConfigError, JobwireError
from jobwire.inspect.entry import QUEUE, Entry
from jobwire.inspect.filters import Filter

__all__ = ["Search"]

JID = re.compile(r"[0-9a-f]{24}")
MAX_HITS_A_PLACE = 50  # hits in one place
SETS = ("retry", "schedule", "dead", "unreadable")


@dataclass(frozen=True, slots=True)
class Hits:
    """The jobs found so far, ready to be drawn."""

    rows: list[Row]
    entries: dict[str, Entry]
    line: str


class Search(DataScreen[None]):
    """A line to type, and the jobs of all places that match.

    Args:
        context: The parts that all screens share.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "ask", "Search"),
        Binding("escape", "back", "Stop"),
    ]
    polled = False

    def __init__(self, context: ScreenContext) -> None:
        super().__init__(context, "search")
        self._hits: dict[str, Entry] = {}
        self._stop = threading.Event()
        self._searching = False

    def body(self) -> ComposeResult:
        """Yield the line and the table."""
        yield Input(placeholder=HELP, id="query")
        yield Rows(Column("place", 22), Column("class", 22), Column("arguments", 0), JID_COLUMN)

    def on_mount(self) -> None:
        """Begin in the line."""
        super().on_mount()
        self.query_one(Input).focus()
        self.say("a job id of 24 digits leads to the job; other words are searched in all places")

    def read_data(self) -> None:
        """Read nothing: a search runs on demand."""

    def show_data(self, data: None) -> None:
        """Show nothing."""

    def action_ask(self) -> None:
        """Go to the line."""
        self.query_one(Input).focus()

    def action_back(self) -> None:
        """Stop the search, and go to the table."""
        self._stop.set()
        self.query_one(Rows).focus()

    def on_unmount(self) -> None:
        """Stop the search."""
        self._stop.set()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search."""
        asked = event.value.strip()
        if JID.fullmatch(asked):
            self.app.push_screen(JobView(self.context, self.tab, asked))
            return
        try:
            only = parse(asked)
        except ConfigError as error:
            self.warn(str(error))
            return
        if only:
            self._stop.set()
            self.query_one(Rows).focus()
            self._search(only)

    @work(exclusive=True, group="search")
    async def _search(self, only: Filter) -> None:
        self._stop = stop = threading.Event()
        post = poster()

        def report(hits: Hits) -> None:
            post(lambda: None if stop.is_set() else self._show(hits))

        try:
            hits = await in_thread(lambda: self._everywhere(only, stop, report))
        except JobwireError as error:
            self.warn(str(error))
            return
        if self._stop is stop:
            self._show(hits)

    def _everywhere(
        self, only: Filter, stop: threading.Event, report: Callable[[Hits], None]
    ) -> Hits:
        """Search one place after the other, in a thread."""
        operations = self.context.operations
        queues = sorted(operations.inspector.queues(), key=lambda queue: (queue.size, queue.name))
        places = [*SETS, *(QUEUE + queue.name for queue in queues if queue.size)]
        rows: list[Row] = []
        entries: dict[str, Entry] = {}
        seen = total = 0

        def hits(place: str, found: Found, state: str) -> Hits:
            more = {f"{place} {digest(one)}": one for one in found.entries}
            drawn = [Row(key, _cells(one)) for key, one in more.items()]
            examined = f"{len(rows) + len(drawn):,} found, {seen + found.seen:,} examined"
            return Hits([*rows, *drawn], {**entries, **more}, f"{examined}{state}")

        for place in places:

            def progress(found: Found, place: str = place) -> None:
                name = place_name(place)
                where = f"; in {name}: {found.seen:,} of {found.total:,} (esc stops)"
                report(hits(place, found, where))

            found = scan(
                operations,
                Selection(place=place, only=only),
                now=self.context.clock(),
                rising=True,
                stop=stop,
                report=progress,
                most=MAX_HITS_A_PLACE,
            )
            last = hits(place, found, "")
            rows, entries = last.rows, dict(last.entries)
            seen, total = seen + found.seen, total + found.total
        state = "; stopped" if stop.is_set() else f" of {total:,}"
        return Hits(rows, entries, f"{len(rows):,} found, {seen:,} examined{state}")

    def _show(self, hits: Hits) -> None:
        if self.alive:
            self._hits = hits.entries
            self.query_one(Rows).fill(hits.rows)
            self.say(hits.line)

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the page of the job."""
        one = self._hits.get(self.query_one(Rows).current or "")
        if one is not None:
            known = JobLocation(one.place, one, queue=one.queue)
            self.app.push_screen(JobView(self.context, self.tab, one.jid or "", known))


JID_COLUMN = Column("jid", 26, spare=True)


def _cells(one: Entry) -> tuple[Part, ...]:
    error = f" {one.error_class}: {one.error_message}" if one.error_class else ""
    arguments = one.text if one.problem else one_line(one.display_args, 100) + error
    return (
        place_name(one.place),
        Cell(shown(one.display_class or "?", 60), "name"),
        shown(arguments),
        shown(one.jid or "-", 40),
    )
