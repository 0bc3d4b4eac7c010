"""How fast a queue of jobs that do nothing is drained, by jobwire and by real Sidekiq in turn.

    .ci/bench peers [--jobs N] [--runs N] [--concurrency N]

One process each, without log, on one server that nobody else uses. Needs what `make interop` needs.
What the figures say and what not: docs/performance.md.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from jobwire import Client
from tests.interop.conftest import chroots, missing
from tests.interop.ruby_process import RubyProcess
from tests.servers import Keeper, Server, valkey_program, wait_until
from tests.workers import Workers

HERE = Path(__file__).parent
VERSION = "8.1.7"
WARM = 1_000  # jobs before those that count
TICK = 1 / os.sysconf("SC_CLK_TCK")
PATIENCE = 600.0  # seconds for one run

Running = AbstractContextManager[int]  # of a worker, by its pid


@dataclass(frozen=True)
class Sample:
    """One drain."""

    rate: float
    cpu_us: float  # of the worker process, for each job
    rss_mib: float  # at the end


@contextmanager
def sidekiq(server: Server, concurrency: int) -> Iterator[int]:
    command = ["sidekiq", "-r", "./nothing.rb", "-c", str(concurrency), "-q", "default"]
    process = RubyProcess(
        chroots() / VERSION,
        command,
        {"REDIS_URL": server.url},
        pipes=False,
        directory=HERE / "sidekiq",
    )
    try:
        yield process.pid
    except AssertionError:
        sys.stderr.write(process.log())
        raise
    finally:
        process.close()


@contextmanager
def jobwire(server: Server, concurrency: int, *, keeper: Keeper, fetch: str) -> Iterator[int]:
    with tempfile.TemporaryDirectory() as directory, Workers(keeper, Path(directory)) as workers:
        worker = workers.start(
            f"{HERE / 'nothing.py'}:app",
            *("--redis", server.url, "-c", str(concurrency)),
            *("--log-level", "error", "--fetch", fetch),
        )
        yield worker.process.pid


def used(pid: int) -> tuple[float, float]:
    """Return seconds of CPU and MiB of memory of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    rss = next(line for line in status if line.startswith("VmRSS:"))
    return (int(fields[11]) + int(fields[12])) * TICK, int(rss.split()[1]) / 1024


def drain(server: Server, worker: Running, jobs: int) -> Sample:
    client = server.client()
    client.flushall()

    def push(count: int) -> None:
        with Client(server.url, generation=8) as pusher:
            pusher.push_bulk("Nothing", [[number] for number in range(count)], queue="stock")

    def empty() -> bool:
        return not client.exists("queue:default")

    def processed() -> bool:
        return int(client.get("stat:processed") or 0) == WARM + jobs

    def run(count: int) -> float:
        """Return the seconds from when there are jobs to when there are none."""
        push(count)
        # No payload says where it is: only the key's name counts.
        started = time.perf_counter()
        client.rename("queue:stock", "queue:default")
        wait_until(empty, PATIENCE, "the queue to be empty")
        return time.perf_counter() - started

    with worker as pid:
        wait_until(lambda: client.scard("processes") == 1, 60, "the worker to register")
        run(WARM)
        before, _ = used(pid)
        seconds = run(jobs)
        after, rss = used(pid)
        # Sidekiq writes its counters with its next beat.
        wait_until(processed, 60, "all jobs to be counted")
    return Sample(jobs / seconds, (after - before) / jobs * 1e6, rss)


def main() -> int:
    parser = argparse.ArgumentParser(prog=".ci/bench peers")
    parser.add_argument("--jobs", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--concurrency", type=int, default=10)
    options = parser.parse_args()
    if min(options.jobs, options.runs, options.concurrency) < 1:
        parser.error("--jobs, --runs and --concurrency must be at least 1")
    if reason := missing(VERSION):
        parser.error(reason)
    out = Console(highlight=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and clean up on the way
    keeper = Keeper()
    server = Server(keeper, valkey_program())
    peers: dict[str, Callable[[], Running]] = {
        f"Sidekiq {VERSION}": partial(sidekiq, server, options.concurrency),
        **{
            f"jobwire, {fetch} fetch": partial(
                jobwire, server, options.concurrency, keeper=keeper, fetch=fetch
            )
            for fetch in ("basic", "reliable")
        },
    }
    samples: dict[str, list[Sample]] = {name: [] for name in peers}
    try:
        for number in range(options.runs):
            for name, start in peers.items():  # in turn: what disturbs, disturbs all
                sample = drain(server, start(), options.jobs)
                samples[name].append(sample)
                out.print(f"run {number + 1}: {name}: {sample.rate:,.0f} jobs/s")
    finally:
        server.close()
        keeper.close()
    table = Table("median (least to most)", "jobs/s", "CPU per job, µs", "memory, MiB")
    for name, found in samples.items():
        table.add_row(name, *(spread(found, what) for what in ("rate", "cpu_us", "rss_mib")))
    out.print(table)
    out.print(
        f"{options.jobs:,} jobs, {options.concurrency} threads, load {os.getloadavg()[0]:.1f}"
    )
    return 0


def spread(samples: list[Sample], what: str) -> str:
    values: list[Any] = [getattr(sample, what) for sample in samples]
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


if __name__ == "__main__":
    sys.exit(main())
