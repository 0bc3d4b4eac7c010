"""The jobs that jobwire runs, and their push; `ruby/jobs.rb` has the same jobs for Sidekiq.

jobs.py one|async|bulk JOBS      push so many jobs; print the seconds that it took
"""

from __future__ import annotations

import asyncio
import os
import sys
import time

from jobwire import App, AsyncClient, Client

CALLERS = 100
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


def one(jobs: int) -> float:
    with Client() as client:
        client.push("Nothing", [0])  # connects
        started = time.perf_counter()
        for number in range(jobs):
            client.push("Nothing", [number])
        return time.perf_counter() - started


def bulk(jobs: int) -> float:
    with Client() as client:
        client.push("Nothing", [0])
        started = time.perf_counter()
        client.push_bulk("Nothing", [[number] for number in range(jobs)])
        return time.perf_counter() - started


async def by_many(jobs: int) -> float:
    async with AsyncClient() as client:
        await client.push("Nothing", [0])
        numbers = iter(range(jobs))

        async def caller() -> None:
            for number in numbers:
                await client.push("Nothing", [number])

        started = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        return time.perf_counter() - started


if __name__ == "__main__":
    how, count = sys.argv[1], int(sys.argv[2])
    if how == "async":
        seconds = asyncio.run(by_many(count))
    else:
        seconds = {"one": one, "bulk": bulk}[how](count)
    sys.stdout.write(f"{seconds}\n")
