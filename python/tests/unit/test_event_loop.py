"""jobwire.worker.execute.event_loop: the stacks of tasks."""

from __future__ import annotations

import asyncio
import threading

from jobwire.worker.execute.event_loop import AsyncLoop


async def nothing() -> None:
    """Do nothing."""


def test_the_stack_of_a_task_shows_where_it_runs_or_waits() -> None:
    """SIG-3: a task that runs at this moment has no list of inner frames."""
    running, go_on, waiting = threading.Event(), threading.Event(), threading.Event()

    async def blocks() -> None:
        running.set()
        go_on.wait(30)
        waiting.set()
        await asyncio.sleep(30)

    async def outer() -> None:
        await blocks()

    loop = AsyncLoop()
    loop.call(lambda inner: inner.create_task(outer()))
    try:
        assert running.wait(30)
        assert ["in blocks" in stack for stack in loop.stacks().values()] == [True]
        go_on.set()
        assert waiting.wait(30)
        assert ["in blocks" in stack for stack in loop.stacks().values()] == [True]
    finally:
        go_on.set()
        loop.close(nothing)
