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


async def work(ctx: Any, what: str, ident: str, seconds: float) -> None:
    if seconds:
        marks.note("s", what, ident)
        await asyncio.sleep(seconds)
    marks.note("e", what, ident)


class WorkerSettings:
    functions = (Nothing, Failing, AsyncWaiting, Lone, work)
    redis_settings = settings
    max_jobs = int(os.environ.get("BENCH_CONCURRENCY", "10"))
    max_tries = 25
    keep_result = 0
    # Jobs of a dead worker are found 10 s after this: soon, for the toolbox.
    job_timeout = 5 if "BENCH_LIFE" in os.environ else 300


async def push(kind: str, value: float, delay: float) -> None:
    global _pool
    if _pool is None:
        _pool = await create_pool(settings)
    await _pool.enqueue_job(kind, value, _defer_by=timedelta(seconds=delay) if delay else None)


async def push_unique(run: str, count: int, size: int, seconds: float) -> None:
    pool = await create_pool(settings)
    keys = iter([key for _ in range(size) for key in range(count)])

    async def caller() -> None:
        for key in keys:
            await pool.enqueue_job("work", "unique", f"{run}.{key}", seconds, _job_id=f"key-{key}")

    await asyncio.gather(*(caller() for _ in range(100)))


TOOLBOX = {"unique": push_unique}
