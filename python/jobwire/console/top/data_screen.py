"""A screen that is read again and again, with a title, tabs, a line of state and keys."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import ClassVar, Generic, TypeVar, cast

from textual import actions, events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, Static

from jobwire.console.ops.roles import Action
from jobwire.console.top.context import ScreenContext
from jobwire.console.top.dialogs import Confirm
from jobwire.console.top.styled_text import Cell, Part, joined
from jobwire.console.top.threads import in_thread
from jobwire.errors import JobwireError, RedisTrouble
from jobwire.inspect.formats import clean, duration

__all__ = ["TABS", "DataScreen", "action_key"]

D = TypeVar("D")
T = TypeVar("T")

KEYED_ACTIONS = ("act", "act_on_all")
GENERAL = ("read_again", "back", "app.focus_next")  # the same on all screens
TABS = {
    "1": "overview",
    "2": "queues",
    "3": "busy",
    "4": "retries",
    "5": "scheduled",
    "6": "dead",
    "7": "unreadable",
    "8": "failures",
    "9": "search",
    "0": "journal",
    "i": "periodic",
    "c": "changes",
    "d": "doctor",
}


def action_key(
    key: str, act: Action, words: str, *, on_all: bool = False, shown: bool = True
) -> Binding:
    """Return the binding of a key to an action.

    Args:
        key: The key.
        act: The act.
        words: Its description.
        on_all: True if it acts on all entries that the filter selects.
        shown: False to leave it out of the line of keys, because that line is short.
    """
    action = f"act_on_all('{act}')" if on_all else f"act('{act}')"
    return Binding(key, action, words, show=shown)


class DataScreen(Screen[None], Generic[D]):
    """A screen that shows one kind of data.

    A subclass reads its data in `read_data`, in a thread, and shows it in `show_data`. People whose
    role does not allow an action do not see its key, and are told so if they press it.

    Args:
        context: The parts that all screens share.
        tab: Name of its tab, or of the tab from which it was opened.
        heading: Its title.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f5", "read_again", "Read again", show=False),
        Binding("escape", "back", "Back", show=False),
    ]
    polled = True  # False: it is read when it opens, and on F5

    def __init__(self, context: ScreenContext, tab: str, heading: str = "") -> None:
        super().__init__()
        self.context = context
        self.tab = tab
        self.heading = heading or tab.capitalize()
        self.due = True  # it was not read yet, or a person asks for it
        self.reads = 0  # that succeeded
        self._trouble = ""
        self._state: list[Part] = []

    # -- for subclasses

    def read_data(self) -> D:
        """Return the data, in a thread; it may block."""
        raise NotImplementedError

    def show_data(self, data: D) -> None:
        """Show the data."""
        raise NotImplementedError

    def body(self) -> ComposeResult:
        """Yield the widgets between the tabs and the line of state."""
        raise NotImplementedError

    async def perform(self, act: Action) -> None:
        """Do an action that a key asks for; the role allows it."""
        raise NotImplementedError

    async def perform_on_all(self, act: Action) -> None:
        """Do an action on all entries that the filter selects; the role allows it."""
        raise NotImplementedError

    @property
    def alive(self) -> bool:
        """False once its widgets are gone, because the program or the screen ends."""
        return self.is_attached and bool(self.query("#state"))

    # -- reading

    async def update_data(self) -> None:
        """Read the data in a thread, and show it; an outage of Redis shows as a line."""
        self.due = False
        try:
            data = await in_thread(self.read_data)
        except RedisTrouble as error:
            now = self.context.clock()
            if self.context.away_since is None:
                self.context.away_since = now
            since = duration(now - self.context.away_since)
            self._trouble = f"Redis cannot be used (for {since}; trying again): {clean(str(error))}"
            self.due = True
        except JobwireError as error:
            self._trouble = clean(str(error))
        else:
            self.context.away_since = None
            self._trouble = ""
            if self.alive:
                self.show_data(data)
                self.reads += 1
        if self.alive:
            self._draw_head()
            self._draw_state()

    # -- drawing

    def compose(self) -> ComposeResult:
        """Yield the widgets."""
        yield Static(id="head", markup=False)
        yield from self.body()
        yield Static(id="state", markup=False)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        """Show the head."""
        self._draw_head()

    def on_resize(self, event: events.Resize) -> None:
        """Show as many tabs in a line as fit."""
        self._draw_head()

    def on_screen_resume(self) -> None:
        """Read the data at once, because it is seen now."""
        self.context.wake.set()

    def say(self, *parts: Part) -> None:
        """Show a line of state, which a trouble with Redis hides while it lasts."""
        self._state = list(parts)
        self._draw_state()

    def _draw_head(self) -> None:
        operations = self.context.operations
        time = datetime.fromtimestamp(self.context.clock(), UTC)
        line: list[Part] = [
            Cell(self.heading, "head"),
            f"  {clean(self.context.address)}  {clean(operations.person)} ({operations.role})",
            f"  {time:%H:%M:%S}Z",
        ]
        self.query_one("#head", Static).update(joined([line, *self._tab_lines()]))

    def _tab_lines(self) -> list[list[Part]]:
        lines: list[list[Part]] = [[]]
        used = 0
        for key, name in TABS.items():
            word = f"{key} {name.capitalize()}"
            if used + len(word) + 2 > self.app.size.width and lines[-1]:
                lines.append([])
                used = 0
            lines[-1].append(Cell(f"[{word}]", "head") if name == self.tab else f" {word} ")
            used += len(word) + 2
        return lines

    def _draw_state(self) -> None:
        line: list[Part] = [Cell(self._trouble, "bad")] if self._trouble else self._state
        self.query_one("#state", Static).update(joined([line]))

    # -- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Hide the keys of actions that the role does not allow."""
        if action in KEYED_ACTIONS:
            return self.context.permits(cast("Action", parameters[0]))
        return super().check_action(action, parameters)

    def on_key(self, event: events.Key) -> None:
        """Say that the role does not allow an action; keys of allowed actions do not come here."""
        for binding in self.BINDINGS:
            if not isinstance(binding, Binding) or binding.key != event.key:
                continue
            name, parameters = _parsed(binding.action)
            if name in KEYED_ACTIONS and not self.context.permits(
                act := cast("Action", parameters[0])
            ):
                self.warn(str(self.context.refusal(act)))

    def keys(self) -> list[tuple[str, str]]:
        """Return the keys of this screen that do something here, each with its description."""
        return [
            (self.app.get_key_display(binding), binding.description)
            for binding in self.BINDINGS
            if isinstance(binding, Binding)
            and binding.action not in GENERAL
            and self.check_action(*_parsed(binding.action))
        ]

    def action_read_again(self) -> None:
        """Read the data now."""
        self.due = True
        self.context.wake.set()

    def action_back(self) -> None:
        """Go back to the screen from which this one was opened."""
        if len(self.app.screen_stack) > 1 and self.app.screen is self:
            self.app.pop_screen()

    @work
    async def action_act(self, act: Action) -> None:
        """Do an action."""
        await self.perform(act)

    @work
    async def action_act_on_all(self, act: Action) -> None:
        """Do an action on all entries that the filter selects."""
        await self.perform_on_all(act)

    # -- actions

    async def attempt(self, call: Callable[[], T]) -> T | None:
        """Do an action in a thread and return its result; None if it failed, with a message."""
        try:
            result = await in_thread(call)
        except JobwireError as error:
            self.warn(str(error))
            return None
        self.due = True
        self.context.wake.set()
        return result

    async def confirmed(self, *lines: str) -> bool:
        """Ask a question; True if the answer is yes."""
        return await self.app.push_screen_wait(Confirm(lines))

    def tell(self, message: str) -> None:
        """Show a message for some seconds."""
        self.app.notify(clean(message), markup=False)

    def warn(self, message: str) -> None:
        """Show a message about something that failed."""
        self.app.notify(clean(message), severity="error", markup=False)


def _parsed(action: str) -> tuple[str, tuple[object, ...]]:
    """Return the name and the parameters of an action such as `act('retry')`."""
    _, name, parameters = actions.parse(action)
    return name, parameters
