"""The web page over a large Redis: figures of docs/performance/web.md.

    .ci/bench web [--members N] [--queued N] [--runs N] [--quick] [--write]

Each page is asked for when nothing of it is in memory, over HTTP on this machine. The server counts
its own commands, time and slow commands. `--write` replaces the tables of the document.

Exit status: 0 the limits of the document hold; 1 one does not; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
from benchmarks.targets.stage import SampleServer, cpu
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from jobwire.protocol import metrics
from jobwire.protocol.keys import Keys

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "performance" / "web.md"
QUEUES, PROCESSES, THREADS = 2_000, 1_000, 10
CLASSES = 200
AT_ONCE = 50_000  # entries that one script writes
APART_S = 1.1  # between two requests, so that no shared number is still fresh
WATCH_S = 20.0  # for which open pages are watched
OPEN = (1, 10, 50)  # open pages
FAR = "A job id that is nowhere"
MAX_MS, MAX_SLOW_US, MAX_MIB = 300, 5_000, 200  # limits: p95 of a page, a command, memory

# Payloads of about 300 bytes. KEYS[1] the key; ARGV: kind, first number, count, score, step.
STOCK = """
local members = {}
for n = tonumber(ARGV[2]), tonumber(ARGV[2]) + tonumber(ARGV[3]) - 1 do
  local job = string.format('{"retry":true,"queue":"q%d","class":"Shop::Job%d","args":[%d,'
    .. '{"customer":"c-%d"}],"jid":"%024x","created_at":1795192067250,'
    .. '"enqueued_at":1795192067250', n % 2000, n % 200, n, n % 9973, n)
  if ARGV[1] == 'failed' then
    job = job .. string.format(',"error_class":"Shop::Error%d","error_message":'
      .. '"order %d is not there","failed_at":1795192067250,"retry_count":%d', n % 40, n, n % 25)
  end
  if ARGV[1] ~= 'queued' then members[#members + 1] = ARGV[4] + n * ARGV[5] end
  members[#members + 1] = job .. '}'
  if #members >= 2000 then
    redis.call(ARGV[1] == 'queued' and 'LPUSH' or 'ZADD', KEYS[1], unpack(members))
    members = {}
  end
end
if #members > 0 then
  redis.call(ARGV[1] == 'queued' and 'LPUSH' or 'ZADD', KEYS[1], unpack(members))
end
"""


@dataclass(frozen=True)
class Figures:
    """The figures of one page: milliseconds of each request, and the means of the rest."""

    title: str
    times: Sequence[float]
    work: float  # milliseconds of CPU of the page's process
    commands: float
    kilobytes: float  # of HTML

    @property
    def p95(self) -> float:
        """The 95th percentile of the times."""
        ordered = sorted(self.times)
        return ordered[min(len(ordered) - 1, round(0.95 * len(ordered)))]


def main() -> int:
    """Fill a server, measure, and report."""
    parser = argparse.ArgumentParser(prog=".ci/bench web")
    parser.add_argument("--members", type=int, default=1_000_000, help="of each set [%(default)s]")
    parser.add_argument("--queued", type=int, default=5_000_000, help="queued jobs [%(default)s]")
    parser.add_argument("--runs", type=int, default=10, help="requests of each page [%(default)s]")
    parser.add_argument("--quick", action="store_true", help="3 requests, a tenth of the jobs")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT.name}")
    options = parser.parse_args()
    if options.quick:
        options.members, options.queued, options.runs = 100_000, 500_000, 3
    out = Console(stderr=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    stage = SampleServer()
    try:
        with Progress(*columns, TimeElapsedColumn(), console=out) as progress:
            fill(stage.client, options.members, options.queued, progress)
            stage.client.config_set("slowlog-log-slower-than", MAX_SLOW_US // 5)
            stage.client.config_set("slowlog-max-len", 10_000)
            with page_of(stage) as (pid, site), heartbeats(stage.client):
                figures = measure(stage, pid, site, options.runs, progress)
                slow = slowest(stage.client)
                loads = [watch(stage, pid, site, number, progress) for number in OPEN]
                memory = peak(pid)
    finally:
        stage.close()
    report = tables(figures, loads, slow, memory)
    sys.stdout.write(report)
    if options.write:
        write(report, options.members, options.queued)
    worst = max(one.p95 for one in figures)
    broken = [
        text
        for text, value, most in (
            ("p95 of a page in ms", worst, MAX_MS),
            ("microseconds of a command", max([0, *slow.values()]), MAX_SLOW_US),
            ("memory in MiB", memory, MAX_MIB),
        )
        if value >= most
    ]
    for text in broken:
        out.print(f"over the limit: {text}")
    return 1 if broken else 0


def fill(client: Any, members: int, queued: int, progress: Progress) -> None:
    """Fill sets, queues, processes and counters; queue `q0` has half of the queued jobs."""
    script = client.register_script(STOCK)
    now = time.time()
    half = queued // 2
    others = half // (QUEUES - 1)
    task = progress.add_task("fill", total=3 * members + half + others * (QUEUES - 1))
    for kind, key, at, step in (
        ("scheduled", "schedule", now + 3_600, 0.1),
        ("failed", "retry", now + 3_600, 0.1),
        ("failed", "dead", now - 10_000_000, 0.1),
        ("queued", "queue:q0", 0, 0),
    ):
        count = half if kind == "queued" else members
        for start in range(0, count, AT_ONCE):
            size = min(AT_ONCE, count - start)
            script(keys=[key], args=[kind, start, size, at, step])
            progress.advance(task, size)
    for number in range(1, QUEUES):
        script(keys=[f"queue:q{number}"], args=["queued", number * others, others, 0, 0])
        progress.advance(task, others)
    client.sadd("queues", *(f"q{number}" for number in range(QUEUES)))
    beat(client)
    activity(client, now)


def identities() -> list[str]:
    """Return the names of the processes."""
    return [f"host-{n // 10}:{n}:{n:012x}" for n in range(PROCESSES)]


def beat(client: Any) -> None:
    """Write the heartbeats of all processes, each with jobs that it runs."""
    now = time.time()
    pipeline = client.pipeline(transaction=False)
    for number, identity in enumerate(identities()):
        info = json.dumps(
            {
                "hostname": f"host-{number // 10}",
                "pid": number,
                "identity": identity,
                "tag": "shop",
                "concurrency": THREADS,
                "started_at": now - 5000,
                "queues": [f"q{(number * 7 + k) % QUEUES}" for k in range(5)],
                "labels": [],
                "version": "8.1.7",
                "embedded": False,
            }
        )
        fields = {"info": info, "busy": THREADS, "beat": now, "quiet": "false", "rss": 200_000}
        pipeline.hset(identity, mapping=fields)
        pipeline.expire(identity, 60)
        work = {}
        for thread in range(THREADS):
            jid = f"{number * THREADS + thread:024x}"
            payload = json.dumps({"class": f"Shop::Job{thread}", "args": [number], "jid": jid})
            running = {"queue": f"q{thread}", "run_at": int(now) - thread, "payload": payload}
            work[f"t{thread}"] = json.dumps(running)
        pipeline.hset(f"{identity}:work", mapping=work)
        pipeline.expire(f"{identity}:work", 60)
        held = {f"{thread}|q{thread}": work[f"t{thread}"] for thread in range(THREADS)}
        pipeline.hset(f"jobwire:private:{identity}", mapping=held)
    pipeline.sadd("processes", *identities())
    pipeline.sadd("jobwire:owners", *identities())
    pipeline.execute()


def activity(client: Any, now: float) -> None:
    """Write the executions of all classes in the last 72 hours."""
    keys, pipeline = Keys(), client.pipeline(transaction=False)
    rollups = [metrics.minute_key(keys, now - back * 60) for back in range(480)]
    rollups += [metrics.tens_key(keys, now - back * 600) for back in range(432)]
    counters = {
        f"Shop::Job{number}|{counter}": value
        for number in range(CLASSES)
        for counter, value in (("p", 1000 + number), ("f", number), ("ms", 90_000))
    }
    for key in rollups:
        pipeline.hset(key, mapping=counters)
    for step, count in ((metrics.MINUTE_S, 480), (metrics.TEN_MINUTES_S, 432)):
        for back in range(count):
            key = metrics.waits_key(keys, now - back * step, step)
            pipeline.setrange(key, 0, b"\0\0\1\0" * (len(metrics.WAITS) + 1))
    pipeline.execute()


@contextmanager
def heartbeats(client: Any) -> Iterator[None]:
    """Keep the processes alive."""
    ended = threading.Event()

    def keep() -> None:
        while not ended.wait(20):
            beat(client)

    thread = threading.Thread(target=keep)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def page_of(stage: SampleServer) -> Iterator[tuple[int, str]]:
    """Serve the page; yield its process id and its address."""
    command = [sys.executable, "-m", "jobwire", "web", "--redis", stage.url, "--port", "0"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        stage.reaper.watch(process.pid)
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            yield process.pid, next(word for word in line.split() if word.startswith("http"))
        finally:
            process.terminate()
            process.wait(30)
            stage.reaper.release(process.pid)


def paths(client: Any) -> dict[str, str]:
    """Return a title and the address of each page."""
    size = client.zcard("retry")
    ((payload, at),) = client.zrange("retry", size // 2, size // 2, withscores=True)
    jid = json.loads(payload)["jid"]
    middle = f"from={size // 2}"
    return {
        "Overview, 5 minutes": "/",
        "Overview, 1 day": "/?period=1d",
        "Busy": "/busy",
        "Queues": "/queues",
        "Queues, the last page": f"/queues?from={QUEUES - 99}",
        "The longest queue": "/queues/q0",
        "The longest queue, in its middle": f"/queues/q0?from={client.llen('queue:q0') // 2}",
        "The longest queue, filtered, no hit": "/queues/q0?class=Nothing",
        "Retries": "/retries",
        "Retries, in their middle": f"/retries?{middle}",
        "Retries, filtered, no hit": "/retries?class=Nothing",
        "Retries, filtered by error": "/retries?error=Error7",
        "Scheduled": f"/scheduled?{middle}",
        "Dead": f"/dead?{middle}",
        "Fetched": "/held",
        "One retry": f"/retries/{at!r}-{jid}",
        FAR: f"/jobs/{'f' * 24}",
        "Failures": "/failures",
        "Classes": "/classes?period=8h",
        "One class": "/classes/Shop::Job7?period=8h",
        "Iterations": "/iterations",
        "Search": "/search?q=Job77",
        "Dry run of all retries": "/bulk?place=retry&act=retry&class=*Job7*",
        "Doctor": "/doctor",
        "Journal": "/journal",
        "/stats": "/stats",
        "/metrics": "/metrics",
    }


def measure(
    stage: SampleServer, pid: int, site: str, runs: int, progress: Progress
) -> list[Figures]:
    """Ask for each page some times, interleaved."""
    pages = paths(stage.client)
    times: dict[str, list[float]] = {title: [] for title in pages}
    work, commands = dict.fromkeys(pages, 0.0), dict.fromkeys(pages, 0)
    lengths = dict.fromkeys(pages, 0)
    task = progress.add_task("measure", total=runs * len(pages))
    with httpx.Client(base_url=site, timeout=60) as client:
        client.get("/journal")
        stage.client.slowlog_reset()
        for _ in range(runs):
            for title, path in pages.items():
                time.sleep(APART_S)
                used, before = cpu(pid), calls(stage.client)
                began = time.perf_counter()
                answer = client.get(path)
                times[title].append((time.perf_counter() - began) * 1000)
                assert answer.status_code == (404 if title == FAR else 200), (
                    path,
                    answer.status_code,
                    answer.text[:500],
                )
                work[title] += (cpu(pid) - used) * 1000
                commands[title] += calls(stage.client) - before - 1
                lengths[title] = len(answer.content)
                progress.advance(task)
    return [
        Figures(
            title, times[title], work[title] / runs, commands[title] / runs, lengths[title] / 1000
        )
        for title in pages
    ]


def calls(client: Any) -> int:
    """Return the number of commands that the server has processed."""
    return int(client.info("stats")["total_commands_processed"])


def slowest(client: Any) -> dict[str, int]:
    """Return the longest duration of each slow command of the page, in microseconds."""
    slow: dict[str, int] = {}
    for entry in client.slowlog_get(10_000):
        name = entry["command"].decode("utf-8", "replace").split()[0].upper()
        slow[name] = max(slow.get(name, 0), entry["duration"])
    return dict(sorted(slow.items(), key=lambda item: -item[1]))


@dataclass(frozen=True)
class Load:
    """The load of some open pages: shares of a core, and commands a second."""

    number: int
    redis: float
    page: float
    commands: float


def watch(stage: SampleServer, pid: int, site: str, number: int, progress: Progress) -> Load:
    """Open pages of the overview, and measure what they cost."""
    task = progress.add_task(f"{number} open pages", total=1)
    ended = threading.Event()

    def follow() -> None:
        headers = {"accept": "text/event-stream"}
        with (
            httpx.Client(base_url=site, timeout=60) as client,
            client.stream("GET", "/", headers=headers) as answer,
        ):
            for _ in answer.iter_raw():
                if ended.is_set():
                    return

    threads = [threading.Thread(target=follow) for _ in range(number)]
    for thread in threads:
        thread.start()
    time.sleep(3)
    before = (cpu(stage.server.pid), cpu(pid), calls(stage.client))
    time.sleep(WATCH_S)
    after = (cpu(stage.server.pid), cpu(pid), calls(stage.client))
    ended.set()
    for thread in threads:
        thread.join()
    progress.advance(task)
    redis, page, commands = ((b - a) / WATCH_S for a, b in zip(before, after, strict=True))
    return Load(number, redis, page, commands)


def peak(pid: int) -> float:
    """Return the largest memory that a process had, in MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    assert found is not None
    return int(found[1]) / 1024


def tables(
    figures: Sequence[Figures], loads: Sequence[Load], slow: dict[str, int], memory: float
) -> str:
    """Return the tables of the document."""
    lines = [
        "| page | median, ms | p95, ms | CPU of the page, ms | Redis commands | HTML, kB |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    lines += [
        f"| {one.title} | {statistics.median(one.times):.0f} | {one.p95:.0f} | {one.work:.0f} |"
        f" {one.commands:,.0f} | {one.kilobytes:.0f} |"
        for one in figures
    ]
    lines += [
        "",
        "| open pages | Redis | page | Redis commands a second |",
        "| --- | --- | --- | --- |",
    ]
    lines += [
        f"| {one.number} | {one.redis:.1%} | {one.page:.1%} | {one.commands:,.0f} |"
        for one in loads
    ]
    longest = ", ".join(f"{name} {us / 1000:.1f} ms" for name, us in [*slow.items()][:3])
    lines += [
        "",
        f"Commands that took the longest: {longest or 'none took more than 1 ms'}. Most memory of"
        f" the page: {memory:.0f} MiB.",
    ]
    return "\n".join(lines) + "\n"


def write(report: str, members: int, queued: int) -> None:
    """Replace the tables of the document, between its two marks."""
    text = DOCUMENT.read_text("utf-8")
    head, _, rest = text.partition("<!-- figures -->\n")
    _, _, tail = rest.partition("<!-- end -->")
    around = (
        f"Measured {datetime.now(UTC):%d %B %Y} with {members:,} members of each set, {queued:,}"
        f" queued jobs, {QUEUES:,} queues and {PROCESSES:,} processes with {THREADS} running jobs"
        f" each, on {os.cpu_count()} cores, Python {platform.python_version()}, load"
        f" {os.getloadavg()[1]:.1f}.\n"
    )
    text = f"{head}<!-- figures -->\n{around}\n{report}<!-- end -->{tail}"
    DOCUMENT.write_text(text, "utf-8")


if __name__ == "__main__":
    sys.exit(main())
