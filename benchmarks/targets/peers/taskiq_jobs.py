"""taskiq: tasks of one event loop, a Redis list, no results kept."""

# mypy: ignore-errors
# It runs in an environment with that queue, in which mypy does not run.

from __future__ import annotations

import asyncio

import marks
from taskiq_redis import ListQueueBroker

broker = ListQueueBroker(marks.URL)
_started = False


@broker.task(task_name="Nothing")
async def nothing(number: int) -> None:
    marks.nothing(number)


@broker.task(task_name="AsyncWaiting")
async def async_waiting(number: int) -> None:
    await asyncio.sleep(0.01)
    marks.nothing(number)


@broker.task(task_name="Lone")
async def lone(sent: float) -> None:
    marks.lone(sent)


TASKS = {"Nothing": nothing, "AsyncWaiting": async_waiting, "Lone": lone}


async def push(kind: str, value: float, delay: float) -> None:
    global _started
    if not _started:
        _started = True
        await broker.startup()
    await TASKS[kind].kiq(value)
