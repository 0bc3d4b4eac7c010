"""The entries of a set or the jobs of a queue: a page by position, or those that a filter finds."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from jobwire.console.ops.bulk import BulkAction
from jobwire.console.ops.locate import JobLocation
from jobwire.console.ops.paging import digest
from jobwire.console.ops.roles import Action
from jobwire.console.ops.selection import Selection
from jobwire.console.top.context import ScreenContext
from jobwire.console.top.data_screen import DataScreen, action_key
from jobwire.console.top.dialogs import AskLine
from jobwire.console.top.filtering import HELP, parse, written
from jobwire.console.top.rows import Column, Row, Rows
from jobwire.console.top.scan import MAX_HITS, Found, scan
from jobwire.console.top.screens.bulk import ask_and_start
from jobwire.console.top.screens.entry_actions import POSSIBLE, act_on_entry
from jobwire.console.top.screens.job import JobView
from jobwire.console.top.styled_text import Cell, Part, one_line, shown
from jobwire.console.top.threads import in_thread, poster
from jobwire.errors import ConfigError, JobwireError
from jobwire.inspect.entry import QUEUE, Entry
from jobwire.inspect.filters import Filter
from jobwire.inspect.formats import ago, clean, duration

__all__ = ["Entries", "place_name"]

MAX_PAGE_ROWS = 50  # entries, if the terminal has room for so many
TITLES = {
    "schedule": "Scheduled",
    "retry": "Retries",
    "dead": "Dead",
    "unreadable": "Unreadable",
}
ALL_KEYS = {"retry": "R", "add_to_queue": "A", "kill": "K", "delete": "X"}
COLUMNS = {
    "schedule": [
        Column("due", 12, right=True),
        Column("queue", 14),
        Column("class", 24),
        Column("arguments", 0),
        Column("jid", 26, spare=True),
    ],
    "retry": [
        Column("next", 12, right=True),
        Column("tries", 5, right=True),
        Column("class", 22),
        Column("error", 0),
        Column("queue", 16, spare=True),
        Column("arguments", 24, spare=True),
    ],
    "dead": [
        Column("died", 12, right=True),
        Column("tries", 5, right=True),
        Column("class", 22),
        Column("error", 0),
        Column("queue", 16, spare=True),
        Column("arguments", 24, spare=True),
    ],
    "unreadable": [
        Column("since", 12, right=True),
        Column("problem", 30),
        Column("payload", 0),
    ],
    "queue": [
        Column("age", 9, right=True),
        Column("class", 26),
        Column("arguments", 0),
        Column("jid", 26, spare=True),
    ],
}


@dataclass(frozen=True, slots=True)
class Shown:
    """One page of a place: rows that are ready to be drawn, and the entries behind them.

    Attributes:
        rows: The rows.
        entries: Name of a row to its entry.
        start: Position of the first one.
        total: Number of entries in the place.
    """

    rows: list[Row]
    entries: dict[str, Entry]
    start: int
    total: int


class Entries(DataScreen[Shown | None]):
    """The entries of one place.

    Args:
        context: The parts that all screens share.
        tab: Name of its tab.
        place: `schedule`, `retry`, `dead`, `unreadable` or `queue:<name>`.
        group: Key of a group of failures, to show its entries only.
        group_name: Name of the group.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter"),
        action_key("r", "retry", "Retry"),
        action_key("a", "add_to_queue", "Enqueue"),
        action_key("k", "kill", "Kill"),
        action_key("x", "delete", "Delete"),
        action_key("t", "reschedule", "When"),
        action_key("R", "retry", "Retry all that match", on_all=True, shown=False),
        action_key("A", "add_to_queue", "Enqueue all that match", on_all=True, shown=False),
        action_key("K", "kill", "Kill all that match", on_all=True, shown=False),
        action_key("X", "delete", "Delete all that match", on_all=True, shown=False),
        action_key("C", "clear", "Clear", shown=False),
        Binding("n", "turn(1)", "Next"),
        Binding("p", "turn(-1)", "Previous", show=False),
    ]

    def __init__(
        self,
        context: ScreenContext,
        tab: str,
        place: str,
        *,
        group: str | None = None,
        group_name: str = "",
    ) -> None:
        super().__init__(context, tab, place_name(place))
        self.place = place
        self.group = group
        self._group_name = group_name
        self.only = Filter()
        self._start = 0
        self._per_page = 20
        self._shown = Shown([], {}, 0, 0)
        self._found: Found | None = None
        self._stop = threading.Event()
        self._searching = False

    @property
    def polled(self) -> bool:  # type: ignore[override]
        """Without a filter; a search reads much, so it runs once."""
        return not self._filtered

    @property
    def selection(self) -> Selection:
        """The entries that the filter selects."""
        return Selection(place=self.place, only=self.only, group=self.group)

    @property
    def _filtered(self) -> bool:
        return bool(self.only) or self.group is not None

    @property
    def _rising(self) -> bool:
        return self.place in ("schedule", "retry") or self.place.startswith(QUEUE)

    @property
    def _possible(self) -> tuple[Action, ...]:
        return POSSIBLE.get(self.place, ("delete",))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the keys of actions that this place, or the role, does not allow."""
        if action in ("act", "act_on_all") and parameters[0] not in (*self._possible, "clear"):
            return False
        return super().check_action(action, parameters)

    # -- drawing

    def body(self) -> ComposeResult:
        """Yield the table."""
        yield Rows(*COLUMNS["queue" if self.place.startswith(QUEUE) else self.place])

    def on_mount(self) -> None:
        """Begin with the search, if only a group is to be shown."""
        super().on_mount()
        if self._filtered:
            self._search()

    def read_data(self) -> Shown | None:
        """Return one page by its position; with a filter, nothing: the search does it."""
        if self._filtered:
            return None
        start = self._start
        page = self.context.operations.page(
            self.place, start=start, count=self._per_page, rising=self._rising
        )
        if not page.entries and start and page.total:  # the place has become shorter
            self._start = start = (page.total - 1) // self._per_page * self._per_page
            page = self.context.operations.page(
                self.place, start=start, count=self._per_page, rising=self._rising
            )
        return self._made(page.entries, start, page.total)

    def show_data(self, data: Shown | None) -> None:
        """Show the page."""
        table = self.query_one(Rows)
        self._per_page = max(min(table.size.height - 1, MAX_PAGE_ROWS), 5)
        if data is None or self._filtered:
            return
        self._shown = data
        table.fill(data.rows)
        last = data.start + len(data.rows)
        if not data.rows:
            self.say("nothing here")
        else:
            self.say(f"{data.start + 1:,}-{last:,} of {data.total:,}", *self._hint())

    def _hint(self) -> list[Part]:
        keys = " ".join(
            key for act, key in ALL_KEYS.items() if self.check_action("act_on_all", (act,))
        )
        if not keys:
            return []
        return [Cell(f"   {keys}: all that match", "dim")]

    def _made(self, entries: Iterable[Entry], start: int, total: int) -> Shown:
        now = self.context.clock()
        rows: list[Row] = []
        named: dict[str, Entry] = {}
        for one in entries:
            key, again = digest(one), 1
            while key in named:  # a queue may have the same payload several times
                again += 1
                key = f"{digest(one)} {again}"
            named[key] = one
            rows.append(Row(key, self._cells(one, now)))
        return Shown(rows, named, start, total)

    def _cells(self, one: Entry, now: float) -> tuple[Part, ...]:
        at = ago(one.score, now)
        name = Cell(shown(one.display_class or "?", 60), "name")
        queue = shown(one.queue, 40)
        problem = one.problem
        error: Part = Cell(shown(f"{one.error_class}: {one.error_message}"), "bad")
        if problem:
            error = Cell(shown(problem), "bad")
        jid = shown(one.jid or "-", 40)
        arguments = one_line(one.display_args) if not problem else shown(one.text)
        if self.place == "schedule":
            return at, queue, name, arguments, jid
        if self.place == "unreadable":
            return at, error, shown(one.text)
        if self.place.startswith(QUEUE):
            return duration(one.latency(now)), name, arguments, jid
        tries = str(one.retry_count + 1) if one.retry_count is not None else "-"
        return at, tries, name, error, queue, arguments

    # -- filter and pages

    @work
    async def action_filter(self) -> None:
        """Ask for a filter, and search."""
        line = await self.app.push_screen_wait(
            AskLine(f"Filter of {self.heading}", hint=HELP, value=written(self.only))
        )
        if line is None:
            return
        try:
            self.only = parse(line)
        except ConfigError as error:
            self.warn(str(error))
            return
        self._restart()

    def _restart(self) -> None:
        self._stop.set()
        self._start = 0
        if self._filtered:
            self._search()
        else:
            self._searching = False
            self.action_read_again()

    @work(exclusive=True, group="search")
    async def _search(self) -> None:
        """Find the entries that match, in a thread, until `MAX_HITS` are found."""
        self._stop = stop = threading.Event()
        self._searching = True
        post = poster()
        self.query_one(Rows).fill([])

        def report(found: Found) -> None:
            made = self._made(found.entries, 0, found.total)
            line = self._progress(found)
            post(lambda: None if stop.is_set() else self._show_found(made, line))

        def run() -> tuple[Found, Shown]:
            found = scan(
                self.context.operations,
                self.selection,
                now=self.context.clock(),
                rising=self._rising,
                stop=stop,
                report=report,
            )
            return found, self._made(found.entries, 0, found.total)

        try:
            found, made = await in_thread(run)
        except JobwireError as error:
            self.warn(str(error))
            return
        finally:
            if self._stop is stop:
                self._searching = False
        if self._stop is stop and self.alive:
            self._found = found
            self._show_found(made, self._summary(found, stopped=stop.is_set()))

    def _show_found(self, made: Shown, line: str) -> None:
        if self.alive and self._filtered:
            self._shown = made
            self.query_one(Rows).fill(made.rows)
            self.say(line, *self._hint())

    def _progress(self, found: Found) -> str:
        return (
            f"{self._what()}: searching, {found.matched:,} in {found.seen:,} of {found.total:,}"
            " (esc stops)"
        )

    def _summary(self, found: Found, *, stopped: bool) -> str:
        line = f"{self._what()}: {found.matched:,} in {found.seen:,} of {found.total:,}"
        if found.matched >= MAX_HITS:
            return f"{line}, more may follow; actions reach all"
        return f"{line}; stopped" if stopped else f"{line} (esc: all)"

    def _what(self) -> str:
        parts = [self._group_name] if self.group else []
        return clean(" ".join([*parts, *([written(self.only)] if self.only else [])]))

    def action_turn(self, pages: int) -> None:
        """Go to the next page, or to the one before."""
        start = self._start + pages * self._per_page
        if not self._filtered and 0 <= max(start, 0) < max(self._shown.total, 1):
            self._start = max(start, 0)
            self.query_one(Rows).move_cursor(row=0)
            self.action_read_again()

    def action_read_again(self) -> None:
        """Read the page, or search, again."""
        if self._filtered and not self._searching:
            self._search()
        super().action_read_again()

    def action_back(self) -> None:
        """Stop the search; or else leave the filter; or else go back."""
        if self._searching:
            self._stop.set()
        elif self.only:
            self.only = Filter()
            self._restart()
        else:
            super().action_back()

    def on_unmount(self) -> None:
        """Stop the search."""
        self._stop.set()

    # -- actions

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the page of the job."""
        if (one := self._chosen()) is not None:
            queue = self.place.removeprefix(QUEUE) if self.place.startswith(QUEUE) else one.queue
            known = JobLocation(self.place, one, queue=queue)
            self.app.push_screen(JobView(self.context, self.tab, one.jid or "", known))

    def _chosen(self) -> Entry | None:
        key = self.query_one(Rows).current
        return None if key is None else self._shown.entries.get(key)

    async def perform(self, act: Action) -> None:
        """Do an action on the entry under the cursor, or clear the place."""
        if act == "clear":
            await self._clear()
            return
        one = self._chosen()
        if one is None:
            self.warn("there is no entry under the cursor")
        elif await act_on_entry(self, act, one, self.heading):
            self._drop(one)

    def _drop(self, one: Entry) -> None:
        """Take an entry off a list that is not read again."""
        if not self._filtered:
            return
        key = next((key for key, other in self._shown.entries.items() if other is one), None)
        if key is not None:
            del self._shown.entries[key]
            self._shown.rows[:] = [row for row in self._shown.rows if row.key != key]
            self.query_one(Rows).fill(self._shown.rows)

    async def perform_on_all(self, act: Action) -> None:
        """Show the dry run of an action on all that match, and start it if the person agrees."""
        bulk: BulkAction = act  # type: ignore[assignment]
        if await ask_and_start(self.app, self.context, bulk, self.selection, self.heading):
            self.action_read_again()

    async def _clear(self) -> None:
        total = self._shown.total
        if not await self.confirmed(
            f"Delete all of {self.heading}: {total:,} jobs, in one step?",
            "They can be put back for 24 hours.",
        ):
            return
        deleted = await self.attempt(lambda: self.context.operations.clear(self.place))
        if deleted is not None:
            self.tell(f"deleted {deleted.count:,}; undo in the journal")


def place_name(place: str) -> str:
    """Return the title of a place."""
    if place.startswith(QUEUE):
        return f"Queue {shown(place.removeprefix(QUEUE), 60)}"
    return TITLES[place]
