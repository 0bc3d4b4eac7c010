"""The jobs that jobwire runs; `ruby/jobs.rb` has the same jobs for Sidekiq."""

from __future__ import annotations

import asyncio
import os
import time

from jobwire import App, Limit, Unique

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


def work(what: str, ident: str, seconds: float) -> None:
    """Be a job of `benchmarks/toolbox.py`; `peers/marks.py` has the format of the lines."""
    life = os.environ["BENCH_LIFE"]
    if seconds:
        mark(f"s {what} {ident} {life} {time.time()}")
        time.sleep(seconds)
    mark(f"e {what} {ident} {life} {time.time()}")


@app.job
def member(what: str, ident: str, seconds: float) -> None:
    work(what, ident, seconds)


@app.job(limit=Limit("five", at_once=5))
def limited(what: str, ident: str, seconds: float) -> None:
    work(what, ident, seconds)


@app.job(unique=Unique(3600, by=["key"], duplicate="drop"))
def single(key: int, run: str, seconds: float) -> None:
    work("unique", f"{run}.{key}", seconds)
