"""Load on the server of one job and of one idle process: figures of docs/performance/scaling.md.

    .ci/bench scaling [--jobs N] [--waiting N ...]

CPU and bytes are the server's own counts, so that a busy machine changes them little.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.targets.stage import SampleServer
from benchmarks.targets.teams import Jobwire, Setup

from harness.servers import wait_until
from jobwire import Client

ROOT = Path(__file__).resolve().parents[1]
IDLE = 60.0  # seconds: six heartbeats, and some checks for due jobs
SETTLED = 65.0  # after which a process no longer looks for places of dead guards
PROCESSES = 10
ALONE = 5.0  # seconds to measure a server without clients


def counters(stage: SampleServer) -> dict[str, float]:
    info = stage.client.info()
    return {
        "cpu": info["used_cpu_user"] + info["used_cpu_sys"],
        "in": info["total_net_input_bytes"],
        "out": info["total_net_output_bytes"],
        "messages": info["total_reads_processed"],
    }


class Meter:
    """Counts the work of the server for its clients, without its own background work."""

    def __init__(self, stage: SampleServer) -> None:
        self._stage = stage
        self._alone = 0.0  # CPU seconds in a second
        with self.counted() as load:
            time.sleep(ALONE)
        self._alone = load["cpu"] / ALONE

    @contextmanager
    def counted(self) -> Iterator[dict[str, float]]:
        """Count the work during the `with` block; the result is filled at its end."""
        load: dict[str, float] = {}
        before, started = counters(self._stage), time.perf_counter()
        yield load
        seconds, after = time.perf_counter() - started, counters(self._stage)
        load.update({name: after[name] - before[name] for name in before})
        load["cpu"] = max(load["cpu"] - seconds * self._alone, 0.0)


def main() -> int:
    parser = argparse.ArgumentParser(prog=".ci/bench scaling")
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--waiting", type=int, nargs="+", default=[1, PROCESSES], metavar="N")
    parser.add_argument("--no-idle", action="store_true", help="skip the idle processes (a minute)")
    options = parser.parse_args()
    if options.jobs < 1:
        parser.error("--jobs must be at least 1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    jobs: int = options.jobs
    stage = SampleServer()
    team = Jobwire(ROOT)
    rows: list[tuple[str, dict[str, float]]] = []

    def note(title: str, load: dict[str, float], number: int) -> None:
        rows.append((title, {name: value / number for name, value in load.items()}))

    def stock(kind: str, number: int, at: float | None) -> tuple[str, str]:
        """Write jobs to a key that no worker reads; return this key and the real one."""
        with Client(stage.url, generation=8, namespace="stock:") as pusher:
            pusher.push_bulk(kind, [[index] for index in range(number)], at=at)
        return ("stock:schedule", "schedule") if at else ("stock:queue:default", "queue:default")

    def gone(*keys: str) -> Callable[[], bool]:
        def ready() -> bool:
            time.sleep(0.1)  # fewer reads, because they are part of the measured load
            return not stage.client.exists(*keys)

        return ready

    try:
        meter = Meter(stage)
        with Client(stage.url, generation=8) as client:
            client.push("Nothing", [0])
            with meter.counted() as load:
                for number in range(jobs // 10):
                    client.push("Nothing", [number])
            note("enqueue, one by one", load, jobs // 10)
            with meter.counted() as load:
                client.push_bulk("Nothing", [[number] for number in range(jobs)])
            note("enqueue, 1,000 at a time", load, jobs)
        stage.client.flushall()
        with team.start(stage, Setup(log="error"), None):
            wait_until(lambda: stage.client.scard("processes"), 30, "the worker")
            for title, kind, number, at in (
                ("", "Nothing", 1_000, None),
                ("run, quick jobs", "Nothing", jobs, None),
                ("fail, and be stored for retry", "Failing", jobs // 5, None),
                ("be promoted when due, and run", "Nothing", jobs, time.time() - 1),
            ):
                keys = stock(kind, number, at)
                with meter.counted() as load:
                    stage.client.rename(*keys)
                    wait_until(gone("schedule", "queue:default"), 300, "all to have run")
                if title:
                    note(title, load, number)
            stage.client.flushall()
        for processes in options.waiting:
            stage.client.flushall()
            with team.start(stage, Setup(processes=processes, log="error"), None):
                wait_until(lambda: stage.client.scard("processes"), 30, "the worker")
                time.sleep(2)
                with Client(stage.url, generation=8) as client, meter.counted() as load:
                    for number in range(200):
                        client.push("Nothing", [number])
                        time.sleep(0.03)
                note(f"enqueue and run, one at a time, {processes} idle", load, 200)
        if not options.no_idle:
            stage.client.flushall()
            with team.start(stage, Setup(processes=PROCESSES, log="error"), None):
                time.sleep(SETTLED)
                connections = len(stage.client.client_list()) - 1
                with meter.counted() as load:
                    time.sleep(IDLE)
                note("an idle process, in a minute", load, PROCESSES)
                rows[-1][1]["connections"] = connections / PROCESSES
    finally:
        stage.close()
    out = sys.stdout.write
    out("| | server CPU, us | messages | bytes in | bytes out |\n| --- | --- | --- | --- | --- |\n")
    for title, load in rows:
        out(
            f"| {title} | {load['cpu'] * 1e6:.1f} | {load['messages']:.3f} | "
            f"{load['in']:.0f} | {load['out']:.0f} |\n"
        )
        if "connections" in load:
            out(f"\n{load['connections']:.1f} connections a process\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
