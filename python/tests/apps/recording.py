"""Jobs that leave traces in Redis, for tests that run workers as processes."""

from __future__ import annotations

import asyncio
import json
import time
from functools import cache
from typing import Any

import redis

from jobwire import App, current_job

RAN = "test:ran"  # list of [class, args], at the end of each run
STARTED = "test:started"  # list of the numbers given to Hold, at the start of each run
RELEASE = "test:release"  # as soon as this key exists, Hold ends
ONCE = "test:once"  # list of the numbers given to Once, at the start of each run
CLEANED = "test:cleaned"  # list of the numbers of the runs whose finally block ran

app = App()


@cache
def traces() -> redis.Redis:
    assert app.url is not None
    return redis.Redis.from_url(app.url)


def _record(key: str, value: object) -> None:
    traces().rpush(key, json.dumps(value))


@app.job(name="Note")
def note(*args: Any) -> None:
    _record(RAN, ["Note", list(args)])


@app.job(name="Fail")
def fail(text: str) -> None:
    raise ValueError(text)


@app.job(name="Hold")
def hold(number: int) -> None:
    """Run until the test releases the job."""
    _record(STARTED, number)
    try:
        while not traces().exists(RELEASE):
            time.sleep(0.02)
        _record(RAN, ["Hold", [number]])
    finally:
        _record(CLEANED, number)


@app.job(name="Once", retry=False, redeliver=False)
def once(number: int) -> None:
    """Run at most once; the number 0 runs until the test releases the job."""
    _record(ONCE, number)
    while number == 0 and not traces().exists(RELEASE):
        time.sleep(0.02)


@app.job(name="AsyncHold")
async def async_hold(number: int) -> None:
    _record(STARTED, number)
    try:
        while not traces().exists(RELEASE):
            await asyncio.sleep(0.02)
        _record(RAN, ["AsyncHold", [number]])
    finally:
        _record(CLEANED, number)


@app.job(name="Deaf")
def deaf(number: int) -> None:
    """Block where no interruption can be raised."""
    _record(STARTED, number)
    time.sleep(60)


@app.job(name="WhoAmI")
def who_am_i() -> None:
    job = current_job()
    _record(RAN, ["WhoAmI", [job.jid if job else None]])
