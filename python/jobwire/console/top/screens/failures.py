"""Failures of the retry set and the dead set, grouped by their cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from jobwire.console.ops.bulk import BulkAction
from jobwire.console.ops.groups import FailureGroup, FailureGroups, FailureSet
from jobwire.console.ops.roles import Action
from jobwire.console.ops.selection import Selection
from jobwire.console.top.context import ScreenContext
from jobwire.console.top.data_screen import DataScreen, action_key
from jobwire.console.top.rows import Column, Row, Rows
from jobwire.console.top.screens.bulk import ask_and_start
from jobwire.console.top.screens.entries import Entries, place_name
from jobwire.console.top.screens.entry_actions import POSSIBLE
from jobwire.console.top.styled_text import Cell, Part, shown
from jobwire.console.top.threads import poster
from jobwire.inspect.formats import ago
from jobwire.text import counted

__all__ = ["Failures"]

EXAMINED = 5_000  # entries of each set; the key `a` examines all
MAX_ROWS = 500  # rows
SETS: tuple[FailureSet, ...] = ("retry", "dead")


class Failures(DataScreen[FailureGroups]):
    """Groups of failures; a group with entries in both sets has two rows.

    Args:
        context: The parts that all screens share.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        action_key("R", "retry", "Retry group", on_all=True),
        action_key("K", "kill", "Kill group", on_all=True),
        action_key("X", "delete", "Delete group", on_all=True),
        Binding("a", "examine_all", "Examine all"),
    ]
    polled = False

    def __init__(self, context: ScreenContext) -> None:
        super().__init__(context, "failures")
        self._groups: dict[str, tuple[FailureGroup, FailureSet]] = {}
        self._examine: int | None = EXAMINED

    def body(self) -> ComposeResult:
        """Yield the table."""
        yield Rows(
            Column("set", 5),
            Column("jobs", 9, right=True),
            Column("last", 12, right=True),
            Column("class", 20),
            Column("error", 0),
            Column("in", 40, spare=True),
        )

    def on_mount(self) -> None:
        """Say that it takes a while."""
        super().on_mount()
        self._post = poster()
        self.say("reading the failures …")

    def read_data(self) -> FailureGroups:
        """Return the groups of the entries with the highest scores."""

        def progress(seen: int, total: int) -> None:
            line = f"reading the failures: {seen:,} of {total:,}"
            self._post(lambda: self.say(line) if self.alive else None)

        return self.context.operations.groups(SETS, examine=self._examine, progress=progress)

    def show_data(self, data: FailureGroups) -> None:
        """Show the groups."""
        now = self.context.clock()
        self._groups = {
            f"{group.key} {place}": (group, place)
            for group in data.groups
            for place in SETS
            if group.places.get(place)
        }
        rows = [Row(key, tuple(_cells(*pair, now))) for key, pair in self._groups.items()]
        self.query_one(Rows).fill(rows[:MAX_ROWS])
        groups = counted(len(data.groups), "group")
        line = f"{groups} in {data.seen:,} of {data.total:,} jobs; F5: again"
        if data.seen < data.total:
            line += ", a: examine all"
        if data.rest:
            line += f"; {data.rest:,} jobs are in none of these"
        self.say(line)

    def action_examine_all(self) -> None:
        """Examine all entries of both sets."""
        self._examine = None
        self.say("reading the failures …")
        self.action_read_again()

    def _chosen(self) -> tuple[FailureGroup, FailureSet] | None:
        return self._groups.get(self.query_one(Rows).current or "")

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Show the jobs of the group."""
        if (chosen := self._chosen()) is not None:
            group, place = chosen
            name = shown(f"{group.error_class} in {group.job_class or '?'}", 60)
            self.app.push_screen(
                Entries(self.context, self.tab, place, group=group.key, group_name=name)
            )

    async def perform_on_all(self, act: Action) -> None:
        """Do an action on all jobs of the group under the cursor."""
        chosen = self._chosen()
        if chosen is None:
            self.warn("there is no group under the cursor")
            return
        group, place = chosen
        if act not in POSSIBLE[place]:
            self.warn(f"{act} is not possible for the dead jobs")
            return
        bulk: BulkAction = act  # type: ignore[assignment]
        selection = Selection(place=place, group=group.key)
        if await ask_and_start(self.app, self.context, bulk, selection, place_name(place)):
            self.action_read_again()


def _cells(group: FailureGroup, place: FailureSet, now: float) -> Iterator[Part]:
    yield place
    yield f"{group.places[place]:,}"
    yield ago(group.last_seen, now)
    yield Cell(shown(group.job_class or "?", 60), "name")
    yield Cell(shown(f"{group.error_class}: {group.message}"), "bad")
    yield shown(group.frame, 80)
