"""`enqueue.py one|async|bulk JOBS`: push so many jobs; print the seconds that it took.

`enqueue.py FEATURE JSON` pushes the jobs of a feature of `benchmarks/toolbox.py`.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

from benchmarks.targets.jobs import app, limited, member, single

from jobwire import AsyncClient, Client, chain

CALLERS = 100


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


def push_unique(run: str, count: int, size: int, seconds: float) -> None:
    keys = iter([key for _ in range(size) for key in range(count)])

    async def caller() -> None:
        for key in keys:
            await single.aenqueue(key, run, seconds)

    async def callers() -> None:
        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        await app.aclose()

    asyncio.run(callers())


TOOLBOX = {"batch": push_batch, "chain": push_chain, "limit": push_limit, "unique": push_unique}

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
