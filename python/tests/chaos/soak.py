"""A million jobs through one process, whose memory, threads, connections and files stay constant.

    python -m tests.chaos.soak [--jobs N] [--concurrency N]

Linux only: it reads /proc. Exit status: 0 all is flat after warm-up, 1 something grows, 2 wrong
usage.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.servers import Reaper, Server, valkey_program
from jobwire import App, Client
from tests.workers import Workers

GROWTH = 0.10  # of resident memory after warm-up
SPARE = 2  # threads, connections or files that may come and go
WARM = 5  # the first 1/5 of the samples is warm-up
SAMPLES = 20
BACKLOG = 20_000  # jobs that wait at most
SLICE = 1_000

app = App()


@app.job(name="Nothing")
def nothing(number: int) -> None:
    pass


@app.job(name="NothingAsync")
async def nothing_async(number: int) -> None:
    pass


@app.job(name="NothingGood", retry=False)
def nothing_good(number: int) -> None:
    raise ValueError(number)


@dataclass(frozen=True)
class Sample:
    """Resources of the process after this many jobs."""

    jobs: int
    seconds: float
    rss_kib: int
    threads: int
    connections: int
    files: int


def look(client: Any, pid: int, *, jobs: int, seconds: float) -> Sample:
    status = Path(f"/proc/{pid}/status").read_text()
    fields = dict(line.split(":", 1) for line in status.splitlines())
    return Sample(
        jobs=jobs,
        seconds=seconds,
        rss_kib=int(fields["VmRSS"].split()[0]),
        threads=int(fields["Threads"]),
        connections=len(client.client_list()),  # including those of this test, which do not change
        files=min(_files(pid) for _ in range(5)),  # not one that is open for a moment
    )


def _files(pid: int) -> int:
    time.sleep(0.01)
    return len([*Path(f"/proc/{pid}/fd").iterdir()])


def grown(samples: Sequence[Sample]) -> list[str]:
    """Return the resources that grew after warm-up."""
    base, *rest = samples[len(samples) // WARM :]
    found = []
    most = max(sample.rss_kib for sample in rest)
    if most > base.rss_kib * (1 + GROWTH):
        found.append(f"memory: from {base.rss_kib} to {most} KiB")
    for name in ("threads", "connections", "files"):
        first = getattr(base, name)
        last = max(getattr(sample, name) for sample in rest)
        if last > first + SPARE:
            found.append(f"{name}: from {first} to {last}")
    return found


def feed(server: Server, jobs: int, ended: threading.Event) -> None:
    """Push all jobs, a tenth async and a tenth failing, and keep the backlog small."""
    looking = server.client()
    with Client(server.url) as client:
        for start in range(0, jobs, SLICE):
            count = min(SLICE, jobs - start)
            kind = {3: "NothingAsync", 7: "NothingGood"}.get(start // SLICE % 10, "Nothing")
            retry = kind != "NothingGood"
            client.push_bulk(kind, [[start + n] for n in range(count)], retry=retry)
            while looking.llen("queue:default") > BACKLOG and not ended.is_set():
                time.sleep(0.02)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--concurrency", type=int, default=10)
    options = parser.parse_args()
    if options.jobs < SAMPLES or options.concurrency < 1:
        parser.error(f"--jobs must be at least {SAMPLES}, --concurrency at least 1")
    out = Console(highlight=False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and clean up on the way
    reaper = Reaper()
    server = Server(reaper, valkey_program())
    ended = threading.Event()
    samples: list[Sample] = []
    try:
        client = server.client()
        feeder = threading.Thread(target=feed, args=[server, options.jobs, ended], daemon=True)
        with tempfile.TemporaryDirectory() as directory, Workers(reaper, Path(directory)) as all_:
            worker = all_.start(
                "tests.chaos.soak:app",
                *("--redis", server.url, "-c", str(options.concurrency), "--log-level", "error"),
            )
            worker.identity(client)
            feeder.start()
            started = time.monotonic()
            row = "{:>10} {:>8} {:>8} {:>9} {:>8} {:>12} {:>6}"
            titles = ("jobs", "seconds", "jobs/s", "RSS KiB", "threads", "connections", "files")
            out.print(row.format(*titles))
            while len(samples) < SAMPLES:
                goal = options.jobs * (len(samples) + 1) // SAMPLES
                done = 0
                while done < goal:
                    if worker.process.poll() is not None:
                        raise SystemExit(f"the worker has ended:\n{worker.log.read_text()}")
                    time.sleep(0.02)
                    done = int(client.get("stat:processed") or 0)
                seconds = time.monotonic() - started
                sample = look(client, worker.process.pid, jobs=done, seconds=seconds)
                before = samples[-1] if samples else Sample(0, 0.0, 0, 0, 0, 0)
                samples.append(sample)
                pace = (done - before.jobs) / (seconds - before.seconds)
                jobs, _, *uses = astuple(sample)
                out.print(row.format(jobs, f"{seconds:.1f}", f"{pace:.0f}", *uses))
    finally:
        ended.set()
        server.close()
        reaper.close()
    growing = grown(samples)
    for what in growing:
        out.print(f"grows: {what}")
    base, last = samples[len(samples) // WARM], samples[-1]
    out.print(
        f"{last.jobs} jobs in {last.seconds:.0f} s, {last.jobs / last.seconds:.0f} a second; "
        f"memory {(last.rss_kib / base.rss_kib - 1) * 100:+.1f} % since warm-up"
    )
    return 1 if growing else 0


if __name__ == "__main__":
    sys.exit(main())
