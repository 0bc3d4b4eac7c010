"""The jobs that jobwire runs, and their push; `ruby/jobs.rb` has the same jobs for Sidekiq.

jobs.py one|async|bulk JOBS      push so many jobs; print the seconds that it took
jobs.py FEATURE JSON             push the jobs of a feature of `benchmarks/toolbox.py`
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from jobwire import App, AsyncClient, Client, Limit, Unique, chain

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


def work(what: str, ident: str, seconds: float) -> None:
    """Be a job of `benchmarks/toolbox.py`; `peers/marks.py` has the format of the lines."""
    life = os.environ["BENCH_LIFE"]
    if seconds:
        mark(f"s {what} {ident} {life} {time.time()}")
        time.sleep(seconds)
    mark(f"e {what} {ident} {life} {time.time()}")


@app.job(name="Member")
def member(what: str, ident: str, seconds: float) -> None:
    work(what, ident, seconds)


@app.job(name="Limited", limit=Limit("five", at_once=5))
def limited(what: str, ident: str, seconds: float) -> None:
    work(what, ident, seconds)


@app.job(name="Rated", limit=Limit("rated", rate=200, per=1.0))
def rated(what: str, ident: str, seconds: float) -> None:
    work(what, ident, seconds)


@app.job(name="Single", unique=Unique(3600, by=["key"], duplicate="drop"))
def single(key: int, run: str, seconds: float) -> None:
    work("unique", f"{run}.{key}", seconds)


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


def push_batch(run: str, count: int, size: int, seconds: float) -> None:
    for group in range(count):
        done = member.s("callback", f"{run}.{group}", seconds)
        with app.batch(on_success=done) as batch:
            batch.add_all(member.s("batch", f"{run}.{group}.{one}", seconds) for one in range(size))


def push_chain(run: str, count: int, size: int, seconds: float) -> None:
    for number in range(count):
        ids = [f"{run}.{number}.{step}" for step in range(size)]
        chain(*(member.s("chain", one, seconds) for one in ids)).enqueue()


def push_limit(run: str, count: int, size: int, seconds: float) -> None:
    limited.enqueue_bulk([["limit", f"{run}.{number}", seconds] for number in range(count)])


def push_rate(run: str, count: int, size: int, seconds: float) -> None:
    rated.enqueue_bulk([["rate", f"{run}.{number}", seconds] for number in range(count)])


def push_unique(run: str, count: int, size: int, seconds: float) -> None:
    keys = iter([key for _ in range(size) for key in range(count)])

    async def caller() -> None:
        for key in keys:
            await single.aenqueue(key, run, seconds)

    async def callers() -> None:
        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        await app.aclose()

    asyncio.run(callers())


TOOLBOX = {
    "batch": push_batch,
    "chain": push_chain,
    "limit": push_limit,
    "rate": push_rate,
    "unique": push_unique,
}

if __name__ == "__main__":
    if sys.argv[1] in TOOLBOX:
        started = time.time()
        TOOLBOX[sys.argv[1]](**json.loads(sys.argv[2]))
        sys.stdout.write(f"{started} {time.time()}\n")
        sys.exit()
    how, count = sys.argv[1], int(sys.argv[2])
    if how == "async":
        seconds = asyncio.run(by_many(count))
    else:
        seconds = {"one": one, "bulk": bulk}[how](count)
    sys.stdout.write(f"{seconds}\n")
