"""Jobs of every kind that record their runs in a Redis that is never disturbed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from functools import cache
from typing import Any

import redis

from jobwire import App, Cursor, current_job
from jobwire.iterables import over_sequence

RECORD = "CHAOS_RECORD"  # the environment variable with that Redis's URL
FINISHED = "finished"  # list: number of the job and pid of the worker, at each success
ITEMS = "items"  # sets: items:<number of the job>, the items that Walk has done
FAILED = "failed"  # hash: number of the job -> how often it failed
LAST_WORDS = "always fails"

app = App()


@cache
def _record() -> Any:
    return redis.Redis.from_url(os.environ[RECORD])


def _finish(number: int) -> None:
    _record().rpush(FINISHED, f"{number} {os.getpid()}")


@app.job(name="Quick")
def quick(number: int) -> None:
    _finish(number)


@app.job(name="Slow")
def slow(number: int, seconds: float) -> None:
    time.sleep(seconds)
    _finish(number)


@app.job(name="Async")
async def asynchronous(number: int, seconds: float) -> None:
    await asyncio.sleep(seconds)
    _finish(number)


@app.job(name="Flaky", retry=5)
def flaky(number: int, failures: int) -> None:
    """Fail this many times, then succeed."""
    job = current_job()
    assert job is not None
    count = job.get("retry_count")
    if (0 if count is None else count + 1) < failures:
        _record().hincrby(FAILED, number, 1)
        raise ValueError("fails for now")
    _finish(number)


@app.job(name="Doomed", retry=1)
def doomed(number: int) -> None:
    _record().hincrby(FAILED, number, 1)
    raise ValueError(LAST_WORDS)


@app.iterable(name="Walk")
def walk(cursor: Cursor, number: int, items: int) -> Iterator[object]:
    """Do this many items; the job stops with its worker, and another worker continues it."""
    for item, at in over_sequence(cursor, range(items)):
        yield at
        time.sleep(0.02)
        _record().sadd(f"{ITEMS}:{number}", item)
    if _record().scard(f"{ITEMS}:{number}") == items:  # otherwise the job is lost, not finished
        _finish(number)
