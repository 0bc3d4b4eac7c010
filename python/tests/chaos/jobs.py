"""Jobs of every kind that record their runs in a Redis that is never disturbed."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import redis

from jobwire import App, Cursor, Job, current_job
from jobwire.iterables import over_sequence

RECORD = "CHAOS_RECORD"  # the environment variable with that Redis's URL
SHARDS = "CHAOS_SHARDS"  # that with the URL of a cluster, if the jobs are there
FINISHED = "finished"  # list: number of the job and pid of the worker, at each success
ITEMS = "items"  # sets: items:<number of the job>, the items that Walk has done
MISBEHAVED = "misbehaved"  # set: numbers of the jobs that have done their worst
FAILED = "failed"  # hash: number of the job -> how often it failed
LAST_WORDS = "always fails"
HUGE_DELAY = "retry in 2 ** 1024 seconds"

app = App(shards=os.environ.get(SHARDS))


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


class _Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class _OddText(str):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __len__ = __iter__ = None  # type: ignore[assignment]


class _Odd(Exception):
    def __str__(self) -> str:
        return _OddText("odd")


# The keys of both tables are those of `tests.chaos.plan`.
ODD_FAILURES: dict[str, Callable[[], BaseException]] = {
    "exit": lambda: SystemExit(1),
    "no text": _Silent,
    "odd text": _Odd,
    "surrogates": lambda: ValueError("\ud800\x1b[2J\u2028\0"),
    "odd class": type("Odd\u2028", (Exception,), {"__module__": "\udfff"}),
    "huge delay": lambda: ValueError(HUGE_DELAY),
}


@app.job(name="Odd", retry=5)
def odd(number: int, failure: str) -> None:
    """Fail once, with an exception that is hard to store."""
    if _record().hincrby(FAILED, number, 1) == 1:
        raise ODD_FAILURES[failure]()
    _finish(number)


@odd.retry_in
def _(job: Job, error: BaseException, count: int) -> int | None:
    return 2**1024 if error.args == (HUGE_DELAY,) else None


async def _raise(error: BaseException) -> None:
    raise error


def _cancel_all() -> None:
    for task in asyncio.all_tasks():
        task.cancel()


ROGUES: dict[str, Callable[[], object]] = {
    "exit": lambda: asyncio.create_task(_raise(SystemExit(1))),
    "interrupt": lambda: asyncio.get_running_loop().call_soon(_interrupt),
    "stop the loop": lambda: asyncio.get_running_loop().stop(),
    "cancel all": _cancel_all,
}


def _interrupt() -> None:
    raise KeyboardInterrupt


@app.job(name="Rogue")
async def rogue(number: int, deed: str) -> None:
    """Disturb the event loop and all its tasks once."""
    if _record().sadd(MISBEHAVED, number):
        task = ROGUES[deed]()
        await asyncio.sleep(0.05)
        del task
    _finish(number)
