"""Jobs of every kind that keep an account of themselves in a Redis that nobody disturbs."""

from __future__ import annotations

import asyncio
import os
import time
from functools import cache
from typing import Any

import redis

from jobwire import App, current_job

RECORD = "CHAOS_RECORD"  # the environment variable with that Redis's URL
FINISHED = "finished"  # list: number of the job and pid of the worker, at each success
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
    """Fail so often, then succeed."""
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


# Iterable jobs get a kind here, and in `plan`, as soon as there are any.
