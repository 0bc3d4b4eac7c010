"""The jobs of `benchmarks/toolbox.py` that jobwire runs, and their push.

toolbox_jobs.py FEATURE JSON     push the jobs of a feature; print when the push began and ended
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time

from benchmarks.targets.jobs import CALLERS, mark

from jobwire import App, Limit, Unique, chain

app = App()


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
    started = time.time()
    TOOLBOX[sys.argv[1]](**json.loads(sys.argv[2]))
    sys.stdout.write(f"{started} {time.time()}\n")
