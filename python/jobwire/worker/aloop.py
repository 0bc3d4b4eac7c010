"""The event loop that runs `async def` jobs, in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
import traceback
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

    def stacks(self) -> dict[str, str]:
        """Return where each task is, by its name, for the log."""
        loop = self._loop
        if loop is None:
            return {}
        return {task.get_name(): _stack(task) for task in asyncio.all_tasks(loop)}

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


def _stack(task: asyncio.Task[Any]) -> str:
    """Return what a task waits in. (`Task.get_stack` knows only its outermost frame.)"""
    frames = []
    waiting: Any = task.get_coro()
    while (frame := getattr(waiting, "cr_frame", None)) is not None:
        frames.append((frame, frame.f_lineno))
        waiting = waiting.cr_await
    return "".join(traceback.StackSummary.extract(frames).format()).rstrip()


async def _wind_up(loop: asyncio.AbstractEventLoop, last: Callable[[], Awaitable[None]]) -> None:
    try:
        if left := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in left:
                task.cancel()
            await asyncio.wait(left, timeout=CLOSING)
        await last()
    finally:
        loop.stop()
