"""The event loop that runs `async def` jobs, in a thread of its own."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from typing import Any

__all__ = ["AsyncLoop"]


class AsyncLoop:
    """Started with the first job that needs it, so that a sync worker pays nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> concurrent.futures.Future[Any]:
        """Run a coroutine in the loop, in a copy of the caller's context."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._started())

    def stacks(self) -> list[str]:
        """Return where each task is, for the log."""
        loop = self._loop
        if loop is None:
            return []
        return [repr(task) for task in asyncio.all_tasks(loop)]

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(
                    target=self._loop.run_forever, name="jobwire-asyncio", daemon=True
                ).start()
            return self._loop
