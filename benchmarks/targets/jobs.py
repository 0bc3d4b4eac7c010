"""The jobs that jobwire runs; `ruby/jobs.rb` has the same jobs for Sidekiq."""

from __future__ import annotations

import asyncio
import os
import time

from jobwire import App

app = App()
_marks = -1
if "BENCH_MARKS" in os.environ:
    _marks = os.open(os.environ["BENCH_MARKS"], os.O_WRONLY | os.O_APPEND)


def mark(word: object) -> None:
    """Record that a job has run."""
    os.write(_marks, b"%b\n" % str(word).encode())


@app.job(name="Nothing")
def nothing(number: int) -> None:
    pass


@app.job(name="Failing")
def failing(number: int) -> None:
    raise ValueError(number)


@app.job(name="Waiting")
def waiting(number: int) -> None:
    time.sleep(0.01)
    mark(number)


@app.job(name="AsyncWaiting")
async def async_waiting(number: int) -> None:
    await asyncio.sleep(0.01)
    mark(number)


@app.job(name="Lone")
def lone(sent: float) -> None:
    mark(time.time() - sent)
