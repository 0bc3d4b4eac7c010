"""arq: tasks of one event loop, no results kept, no line for each job."""

# mypy: ignore-errors
# It runs in an environment with that queue, in which mypy does not run.

from __future__ import annotations

import asyncio
import logging
import os
from datetime import timedelta
from typing import Any

import marks
from arq import Retry, create_pool
from arq.connections import RedisSettings

logging.getLogger("arq.worker").setLevel(logging.WARNING)
settings = RedisSettings.from_dsn(marks.URL)
_pool: Any = None


async def Nothing(ctx: Any, number: int) -> None:
    marks.nothing(number)


async def Failing(ctx: Any, number: int) -> None:
    marks.nothing(number)
    raise Retry(defer=60)  # a job of arq is retried only after this error


async def AsyncWaiting(ctx: Any, number: int) -> None:
    await asyncio.sleep(0.01)
    marks.nothing(number)


async def Lone(ctx: Any, sent: float) -> None:
    marks.lone(sent)


class WorkerSettings:
    functions = (Nothing, Failing, AsyncWaiting, Lone)
    redis_settings = settings
    max_jobs = int(os.environ.get("BENCH_CONCURRENCY", "10"))
    max_tries = 25
    keep_result = 0


async def push(kind: str, value: float, delay: float) -> None:
    global _pool
    if _pool is None:
        _pool = await create_pool(settings)
    await _pool.enqueue_job(kind, value, _defer_by=timedelta(seconds=delay) if delay else None)
