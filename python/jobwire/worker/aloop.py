"""The event loop that runs `async def` jobs, in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

__all__ = ["AsyncLoop"]

CLOSING = 1.0  # seconds that tasks get which jobs have left behind


class AsyncLoop:
    """Started with the first job that needs it, so that a sync worker pays nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Run a coroutine in the loop, in a copy of the caller's context."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._started())

    def stacks(self) -> list[str]:
        """Return where each task is, for the log."""
        loop = self._loop
        if loop is None:
            return []
        return [repr(task) for task in asyncio.all_tasks(loop)]

    def close(self, last: Callable[[], Awaitable[None]]) -> None:
        """Cancel what still runs in the loop, await `last` there, and end it."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        asyncio.run_coroutine_threadsafe(_wind_up(loop, last), loop)
        thread.join(2 * CLOSING)
        if not thread.is_alive():  # a task that blocks the loop keeps it
            loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="jobwire-asyncio", daemon=True
                )
                self._thread.start()
            return self._loop


async def _wind_up(loop: asyncio.AbstractEventLoop, last: Callable[[], Awaitable[None]]) -> None:
    try:
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=CLOSING)
        await last()
    finally:
        loop.stop()
