"""`enqueue.py one|async|bulk JOBS`: push so many jobs; print the seconds that it took."""

from __future__ import annotations

import asyncio
import sys
import time

from jobwire import AsyncClient, Client

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


if __name__ == "__main__":
    how, count = sys.argv[1], int(sys.argv[2])
    if how == "async":
        seconds = asyncio.run(by_many(count))
    else:
        seconds = {"one": one, "bulk": bulk}[how](count)
    sys.stdout.write(f"{seconds}\n")
