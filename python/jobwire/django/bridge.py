"""Ways between sync and async code that lead back to the thread of the outermost sync caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from asgiref.sync import AsyncToSync, async_to_sync, sync_to_async

from jobwire.application.delivery import Bridge

__all__ = ["BRIDGE"]


def _carried(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return a function for another thread, while the running loop of this one waits for it."""
    by_loop = AsyncToSync.loop_thread_executors
    caller = getattr(AsyncToSync.executors, "current", None) or by_loop.get(
        asyncio.get_running_loop()
    )

    def carried() -> Any:
        AsyncToSync.executors.current = caller
        return function()

    return carried


BRIDGE = Bridge(async_to_sync, sync_to_async, _carried)
