"""Calls that block, in threads of their own: the screen never waits for Redis."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

__all__ = ["in_thread", "poster", "wait_for_threads"]

NAME = "jobwire-top"

T = TypeVar("T")


def poster() -> Callable[[Callable[[], None]], None]:
    """Return a function with which a thread lets the event loop of this task call something."""
    loop = asyncio.get_running_loop()

    def post(call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the program has ended
            loop.call_soon_threadsafe(call)

    return post


async def in_thread(call: Callable[[], T]) -> T:
    """Return the result of a call that blocks, or raise its exception.

    The threads are daemons, so the end of the program does not wait for an unreachable Redis. The
    pool of asyncio would.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    post = poster()

    def settle(finish: Callable[[], None]) -> None:
        # Done already: it was cancelled, because its screen was closed.
        post(lambda: None if future.done() else finish())

    def run() -> None:
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001 - raised in the task that waits
            failure = error  # Python deletes `error` at the end of this block
            settle(lambda: future.set_exception(failure))
        else:
            settle(lambda: future.set_result(result))

    threading.Thread(target=run, name=NAME, daemon=True).start()
    return await future


def wait_for_threads(seconds: float) -> None:
    """Wait for the calls that are under way, but not longer than some seconds in all."""
    deadline = time.monotonic() + seconds
    for thread in threading.enumerate():
        if thread.name == NAME:
            thread.join(max(deadline - time.monotonic(), 0.0))
