"""The application: one screen a tab, the loop that reads the one that is seen, the keys of all."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from textual import work
from textual.app import App
from textual.binding import Binding, BindingType

from jobwire.console.ops.operations import Operations
from jobwire.console.top.context import ScreenContext
from jobwire.console.top.data_screen import TABS, DataScreen
from jobwire.console.top.dialogs import ReadText
from jobwire.console.top.screens.busy import Busy
from jobwire.console.top.screens.changes import ChangeList
from jobwire.console.top.screens.doctor import Doctor
from jobwire.console.top.screens.entries import Entries
from jobwire.console.top.screens.failures import Failures
from jobwire.console.top.screens.journal import Journal
from jobwire.console.top.screens.overview import Overview
from jobwire.console.top.screens.periodic import Periodic
from jobwire.console.top.screens.queues import Queues
from jobwire.console.top.screens.search import Search
from jobwire.console.top.styled_text import Cell, Part
from jobwire.console.top.threads import wait_for_threads

__all__ = ["TopApp"]

CLOSE_S = 1.0  # longer if Redis is unreachable
MAKERS: dict[str, Callable[[ScreenContext], DataScreen[Any]]] = {
    "overview": Overview,
    "queues": Queues,
    "busy": Busy,
    "retries": lambda context: Entries(context, "retries", "retry"),
    "scheduled": lambda context: Entries(context, "scheduled", "schedule"),
    "dead": lambda context: Entries(context, "dead", "dead"),
    "unreadable": lambda context: Entries(context, "unreadable", "unreadable"),
    "failures": Failures,
    "search": Search,
    "periodic": Periodic,
    "journal": Journal,
    "changes": ChangeList,
    "doctor": Doctor,
}
EVERYWHERE = [
    ("1 … 0, i, c, d", "the tabs"),
    ("enter", "open"),
    ("esc", "back"),
    ("tab", "the other table"),
    ("F5", "read again now"),
    ("q, ctrl+c", "quit"),
]


class TopApp(App[None]):
    """Queues, jobs and processes in a terminal.

    Args:
        operations: The command layer, in the name and role of the user.
        address: The URL of Redis without its password.
        interval: Seconds between two reads.
    """

    CSS_PATH = "top.tcss"
    TITLE = "jobwire top"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(key, f"tab('{name}')", name.capitalize(), show=False)
            for key, name in TABS.items()
        ),
        Binding("question_mark", "keys", "Keys"),
        Binding("q", "quit", "Quit"),
        Binding("ctrl+c", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(self, operations: Operations, *, address: str, interval: float = 1.0) -> None:
        # Without colours, the terminal's own ones are used: NO_COLOR then leaves none at all.
        colourless = "NO_COLOR" in os.environ
        super().__init__(ansi_color=True if colourless else None)
        if colourless:
            self.theme = "ansi-dark"
        self.context = ScreenContext(operations=operations, address=address, interval=interval)
        for name, make in MAKERS.items():
            self.add_mode(name, _maker(make, self.context))

    async def on_mount(self) -> None:
        """Begin with the overview."""
        self._end_at_signals()
        await self.switch_mode("overview")
        self._read_on()

    def _end_at_signals(self) -> None:
        """Let TERM and HUP end the program in good order, so that the terminal is restored."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            with suppress(RuntimeError, ValueError):  # only the main thread may do that
                loop.add_signal_handler(number, self.exit)

    def close(self) -> None:
        """Stop the changes after their batch, and wait a moment for reads that are under way."""
        self.context.changes.close()
        wait_for_threads(CLOSE_S)

    def data_screen(self) -> DataScreen[Any] | None:
        """Return the screen that is seen, also behind a question."""
        seen = (screen for screen in reversed(self.screen_stack) if isinstance(screen, DataScreen))
        return next(seen, None)

    @work
    async def _read_on(self) -> None:
        """Read the screen that is seen, at most once in an interval; a slow Redis has a rest."""
        context = self.context
        while True:
            context.wake.clear()  # first: a key that comes during the read asks for another one
            data_screen = self.data_screen()
            began = time.monotonic()
            if (
                data_screen is not None
                and data_screen.is_mounted
                and (data_screen.polled or data_screen.due)
            ):
                await data_screen.update_data()
            took = time.monotonic() - began
            with suppress(TimeoutError):
                await asyncio.wait_for(context.wake.wait(), max(context.interval, took))

    def action_tab(self, name: str) -> None:
        """Show a tab; the tab that is shown returns to its first screen."""
        if self.current_mode == name:
            while len(self.screen_stack) > 1:
                self.pop_screen()
            return
        self.switch_mode(name)

    def action_keys(self) -> None:
        """Show all keys."""
        data_screen = self.data_screen()
        own = [] if data_screen is None else data_screen.keys()
        lines: list[Sequence[Part]] = []
        if own and data_screen is not None:
            lines.append([Cell(f"Keys of {data_screen.heading}", "head")])
            lines += [_key_line(*pair) for pair in own]
            lines.append([""])
        lines.append([Cell("Keys everywhere", "head")])
        lines += [_key_line(*pair) for pair in EVERYWHERE]
        self.push_screen(ReadText(lines))


def _key_line(key: str, words: str) -> list[Part]:
    return [Cell(f"  {key:<14}", "name"), words]


def _maker(
    make: Callable[[ScreenContext], DataScreen[Any]], context: ScreenContext
) -> Callable[[], DataScreen[Any]]:
    return lambda: make(context)
