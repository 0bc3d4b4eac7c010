"""`push.py PEER KIND JOBS [DELAY] [bulk]`: enqueue so many jobs; print the seconds that it took.

With `serve` for JOBS, one job of that kind for each line on standard input, its argument.
With a feature of `benchmarks/toolbox.py` for KIND, JOBS is JSON: the arguments of its function.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys
import time
from typing import Any

CALLERS = 100


def plain(peer: Any, kind: str, jobs: int, delay: float) -> float:
    peer.push(kind, 0, delay)  # connects
    started = time.perf_counter()
    for number in range(1, jobs):
        peer.push(kind, number, delay)
    return time.perf_counter() - started


def bulk(peer: Any, kind: str, jobs: int) -> float:
    peer.push(kind, 0, 0.0)
    started = time.perf_counter()
    for start in range(1, jobs, 1_000):
        peer.push_bulk(kind, range(start, min(start + 1_000, jobs)))
    return time.perf_counter() - started


async def by_many(peer: Any, kind: str, jobs: int, delay: float) -> float:
    await peer.push(kind, 0, delay)
    numbers = iter(range(1, jobs))

    async def caller() -> None:
        for number in numbers:
            await peer.push(kind, number, delay)

    started = time.perf_counter()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return time.perf_counter() - started


async def serve_many(peer: Any, kind: str) -> None:
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        await peer.push(kind, float(line), 0.0)


def main(name: str, kind: str, jobs: str, delay: str = "0", how: str = "") -> None:
    peer = importlib.import_module(f"{name}_jobs")
    if kind in getattr(peer, "TOOLBOX", ()):
        started = time.time()
        pushing = peer.TOOLBOX[kind](**json.loads(jobs))
        if pushing is not None:
            asyncio.run(pushing)
        sys.stdout.write(f"{started} {time.time()}\n")
        return
    is_async = inspect.iscoroutinefunction(peer.push)
    if jobs == "serve":
        if is_async:
            asyncio.run(serve_many(peer, kind))
        else:
            for line in sys.stdin:
                peer.push(kind, float(line), 0.0)
        return
    if how == "bulk":
        seconds = bulk(peer, kind, int(jobs))
    elif is_async:
        seconds = asyncio.run(by_many(peer, kind, int(jobs), float(delay)))
    else:
        seconds = plain(peer, kind, int(jobs), float(delay))
    sys.stdout.write(f"{seconds}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
