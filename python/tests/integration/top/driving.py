"""`jobwire top` without a terminal: keys go in, the text of the screen comes out."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from harness.servers import Server
from jobwire.console.top.app import TopApp
from jobwire.console.top.data_screen import DataScreen
from jobwire.console.top.rows import Rows
from jobwire.ops import Operations, Role

__all__ = ["Driver", "driving"]

PERSON = "ada@host"
WAIT_S = 30.0


class Driver:
    """Presses keys, and reads the screen.

    Args:
        app: The application.
        pilot: Presses its keys.
    """

    def __init__(self, app: TopApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot
        self.messages: list[str] = []
        notify = app.notify

        def remember(message: str, **options: Any) -> None:
            self.messages.append(message)
            notify(message, **options)

        app.notify = remember  # type: ignore[method-assign]

    @property
    def text(self) -> str:
        """The text of the whole screen, a line for each line."""
        strips = self.app.screen._compositor.render_strips()
        return "\n".join(strip.text for strip in strips)

    @property
    def data_screen(self) -> DataScreen[Any]:
        """The screen that is seen, also behind a question."""
        data_screen = self.app.data_screen()
        assert data_screen is not None
        return data_screen

    @property
    def rows(self) -> list[list[str]]:
        """The texts of the first table that is seen."""
        return self.data_screen.query(Rows).first().texts()

    async def press(self, *keys: str) -> None:
        """Press keys, one after the other."""
        await self.pilot.press(*keys)

    async def write(self, line: str) -> None:
        """Type a line, and press enter."""
        names = {" ": "space", ":": "colon", "*": "asterisk", "-": "minus", ".": "full_stop"}
        await self.pilot.press(*(names.get(char, char) for char in line), "enter")

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something is so."""
        deadline = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < deadline, f"{self.messages}\n{self.text}"
            await self.pilot.pause(0.02)

    async def sees(self, *words: str) -> None:
        """Wait until the screen shows all of these."""
        await self.until(lambda: all(word in self.text for word in words))

    async def read(self) -> None:
        """Let the screen be read once more."""
        data_screen = self.data_screen
        before = data_screen.reads
        await self.press("f5")
        await self.until(lambda: data_screen.reads > before)

    async def open(self, key: str) -> None:
        """Open a tab, and wait until it was read."""
        await self.press(key)
        await self.until(lambda: self.data_screen.reads)


@asynccontextmanager
async def driving(
    server: Server,
    *,
    role: Role = "admin",
    size: tuple[int, int] = (80, 24),
    interval: float = 0.1,
    timeout: float = 5.0,
    namespace: str = "",
    toasts: bool = True,
) -> AsyncIterator[Driver]:
    """Run the application; yield its driver.

    A press of a key waits until the process is idle, up to two seconds. It is never idle while
    screens are read or toasts are drawn: a long interval and no toasts make a test fast.
    """
    with Operations(
        server.url, person=PERSON, role=role, timeout=timeout, namespace=namespace
    ) as operations:
        app = TopApp(operations, address=server.url, interval=interval)
        try:
            async with app.run_test(size=size, notifications=toasts) as pilot:
                yield Driver(app, pilot)
        finally:
            await asyncio.to_thread(app.close)
