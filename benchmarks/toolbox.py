"""Batches, chains, limits, rates and unique jobs beside other queues: speed, and after kill -9.

    .ci/bench toolbox [--runs N] [--quick] [--kills N] [--apart S] [--wait S] [--only NAME]...
                        [--feature NAME]... [--json]

Each system has a server of its own with the same settings, and two worker processes of 10 slots.
Speed: the same jobs for one system after the other. kill -9: all systems at the same time, because
that is mostly waiting. Each job writes its start and its end into a file, and the ends of
processes are known, so that the ledger says what ran when.

Exit status: 0 all was measured; 1 a sample failed: it is named, the others are kept; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.targets.peers import peers
from benchmarks.targets.stage import Marks, SampleServer
from rich.console import Console
from rich.table import Table

import jobwire
from harness.servers import clean_environment

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ROOT / "benchmarks" / "targets"
SLOTS, WORKERS, LIMIT, RATE = 10, 2, 5, 200
PATIENCE = 60.0  # seconds for the jobs of one sample
# Count, size and seconds of a job. Speed: groups of jobs, chains of steps, jobs of a limit and of a
# rate, keys and pushes of each. kill -9: jobs that are running when a process is killed.
SPEED = {
    "batch": (20, 200, 0.0),
    "chain": (500, 4, 0.0),
    "limit": (2_000, LIMIT, 0.002),
    "rate": (1_000, RATE, 0.0),
    "unique": (500, 10, 0.0),
}
KILL = {
    "batch": (5, 100, 0.15),
    "chain": (50, 4, 0.15),
    "limit": (300, LIMIT, 0.15),
    "unique": (200, 1, 0.15),
}
LABELS = {
    "batch": "20 groups of 200 jobs, each with a callback, jobs/s",
    "chain": "500 chains of 4 jobs, jobs/s",
    "limit": "jobs of 2 ms, 5 at a time, jobs/s",
    "rate": "1,000 jobs, 200 in a second, jobs/s",
    "crowd": "of them, starts in any second, at most",
    "unique": "10 pushes of each of 500 keys, pushes/s",
}
FEATURES = {
    "jobwire": ("batch", "chain", "limit", "rate", "unique"),
    "celery": ("batch", "chain", "rate"),
    "dramatiq": ("batch", "chain", "limit", "rate"),
    "arq": ("unique",),
    "bullmq": ("batch", "chain", "limit", "rate", "unique"),
}
WARM = 0.1  # of the jobs, before the measured ones
SHARES = {  # of the jobs, where a system is slow: a rate hardly depends on the number
    ("celery", "batch"): 0.2,
    ("celery", "chain"): 0.2,
    ("dramatiq", "batch"): 0.2,
    ("dramatiq", "limit"): 0.1,
}


class Ledger:
    """Record of the runs of one system, in seconds of the clock of this machine."""

    def __init__(self) -> None:
        self.ends: dict[tuple[str, str], list[float]] = {}  # by kind and id of the job
        self._open: dict[tuple[str, str, str], float] = {}  # by kind, id and life of the process
        self._runs: dict[str, list[tuple[float, float]]] = {}  # by kind: start and end

    def add(self, lines: Iterable[str]) -> None:
        """Take the lines that `peers/marks.py` describes."""
        for line in lines:
            mark, what, ident, life, text = line.split()
            moment = float(text)
            if mark == "s":
                self._open[what, ident, life] = moment
                continue
            start = self._open.pop((what, ident, life), moment)
            self._runs.setdefault(what, []).append((start, moment))
            self.ends.setdefault((what, ident), []).append(moment)

    def missing(self, what: str, idents: Iterable[str]) -> int:
        """Return how many of these jobs have not run to their end."""
        return sum((what, ident) not in self.ends for ident in idents)

    def twice(self, what: str, idents: Iterable[str]) -> int:
        """Return how many of these jobs have run to their end more than once."""
        return sum(len(self.ends.get((what, ident), ())) > 1 for ident in idents)

    def crowd(self, what: str, idents: Iterable[str]) -> int:
        """Return how many of these jobs started within a second at most."""
        starts = sorted(self.ends[what, ident][0] for ident in idents)
        return max(bisect_left(starts, at + 1.0) - index for index, at in enumerate(starts))

    def broken_off(self, what: str, killed: Mapping[str, float]) -> list[tuple[float, float]]:
        """Return the starts of the jobs that a kill ended, and its times."""
        return [
            (start, killed[life])
            for (kind, _, life), start in self._open.items()
            if kind == what and life in killed
        ]

    def most(self, what: str, killed: Mapping[str, float]) -> int:
        """Return how many jobs ran at the same instant at most."""
        spans = [*self._runs[what], *self.broken_off(what, killed)]
        steps = [(at, by) for start, end in spans for at, by in ((start, 1), (end, -1))]
        running = most = 0
        for _, by in sorted(steps):  # an end before a start of the same instant
            running += by
            most = max(most, running)
        return most


@dataclass
class System:
    """One system: its server, its workers and its ledger."""

    package: str
    name: str
    worker: Sequence[str]
    pusher: Sequence[str]
    variables: Mapping[str, str]
    stage: SampleServer = field(default_factory=SampleServer)
    ledger: Ledger = field(default_factory=Ledger)
    killed: dict[str, float] = field(default_factory=dict)  # the time, by the life of a process
    lives: int = 0

    def __post_init__(self) -> None:
        self._marks = Marks(self.stage.directory)
        self._workers: list[tuple[str, subprocess.Popen[bytes]]] = []
        self.stage.client.config_set("appendonly", "yes")
        self.stage.client.config_set("appendfsync", "everysec")

    def start(self) -> None:
        """Start one more worker process."""
        self.lives += 1
        words = [word.format(slots=SLOTS, url=self.stage.url) for word in self.worker]
        if self.package == "celery":
            words += ["-n", f"w{self.lives}@%h"]
        with (self.stage.directory / "worker.log").open("ab") as output:
            worker = subprocess.Popen(
                words,
                cwd=self.stage.directory,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.stage.reaper.watch_group(worker.pid)
        self._workers.append((str(self.lives), worker))

    def kill(self) -> None:
        """Kill the oldest worker with the processes that it started."""
        life, worker = self._workers.pop(0)
        self.killed[life] = time.time()
        with suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        self.stage.reaper.release_group(worker.pid)

    def pause(self, number: signal.Signals) -> None:
        """Stop the workers, or let them go on."""
        for _, worker in self._workers:
            os.killpg(worker.pid, number)

    def push(self, feature: str, run: str, shape: tuple[int, int, float]) -> tuple[float, float]:
        """Push the jobs of a feature; return when that began and ended."""
        count, size, seconds = shape
        options = json.dumps({"run": run, "count": count, "size": size, "seconds": seconds})
        with (self.stage.directory / "push.log").open("ab") as output:
            done = subprocess.run(
                [*self.pusher, feature, options],
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                timeout=PATIENCE,
                check=True,
            )
        began, ended = map(float, done.stdout.split())
        return began, ended

    def settle(self, expected: Mapping[str, Sequence[str]], seconds: float) -> int:
        """Wait so long at most for these jobs to end; return how many have not."""
        deadline = time.monotonic() + seconds
        while True:
            self.ledger.add(self._marks.read())
            left = sum(self.ledger.missing(what, ids) for what, ids in expected.items())
            if not left or time.monotonic() > deadline:
                return left
            time.sleep(0.02)

    def speed(self, feature: str, run: str, share: float = 1.0) -> float:
        """Return the jobs, or the pushes, of a second."""
        count, size, seconds = SPEED[feature]
        count = int(count * share * SHARES.get((self.package, feature), 1.0)) or 1
        if feature == "unique":
            self.pause(signal.SIGSTOP)  # no key is free again before all are pushed
        began, ended = self.push(feature, run, (count, size, seconds))
        if feature == "unique":
            self.pause(signal.SIGCONT)
        expected = jobs_of(feature, run, (count, size, seconds))
        left = self.settle(expected, PATIENCE)
        assert not left, f"{left} jobs have not run after {PATIENCE:.0f} s"
        if feature == "unique":
            twice = self.ledger.twice("unique", expected["unique"])
            assert not twice, f"{twice} of {count} keys had a second job"
            return count * size / (ended - began)
        ids = [(what, ident) for what, idents in expected.items() for ident in idents]
        return len(ids) / (max(self.ledger.ends[one][0] for one in ids) - began)

    def crowd(self, run: str) -> float:
        """Return how many jobs of a rate, which take no time, started within a second at most."""
        return self.ledger.crowd("rate", jobs_of("rate", run, SPEED["rate"])["rate"])

    def survive(self, kills: int, apart: float, wait: float) -> dict[str, dict[str, int]]:
        """Push jobs of all features, kill workers meanwhile, and count what is wrong."""
        features = [feature for feature in FEATURES[self.package] if feature in KILL]
        expected: dict[str, Sequence[str]] = {}
        self.pause(signal.SIGSTOP)
        for feature in features:
            self.push(feature, "kill", KILL[feature])
            expected |= jobs_of(feature, "kill", KILL[feature])
        self.pause(signal.SIGCONT)
        for _ in range(kills):
            time.sleep(apart)
            self.kill()
            self.start()
        time.sleep(wait)  # whole, also if all ran: second copies and locks have their time
        self.settle(expected, 0)
        last = max(self.killed.values())
        ledger, found = self.ledger, dict[str, dict[str, int]]()
        for feature in features:
            ids = expected[feature]
            found[feature] = {
                "broken off by a kill": len(ledger.broken_off(feature, self.killed)),
                "never ran": ledger.missing(feature, ids),
                "ran to the end twice": ledger.twice(feature, ids),
                "s from the last kill to the last job": round(
                    max(
                        (
                            ledger.ends[feature, one][0]
                            for one in ids
                            if (feature, one) in ledger.ends
                        ),
                        default=last,
                    )
                    - last
                ),
            }
        if "batch" in features:
            calls = expected["callback"]
            found["batch"]["callbacks that never ran"] = ledger.missing("callback", calls)
            found["batch"]["callbacks that ran twice"] = ledger.twice("callback", calls)
            early = 0
            for call in calls:
                members = [one for one in expected["batch"] if one.startswith(f"{call}.")]
                ends = [ledger.ends.get(("batch", one), [float("inf")])[0] for one in members]
                early += min(ledger.ends.get(("callback", call), [float("inf")])) < max(ends)
            found["batch"]["callbacks that ran too early"] = early
        if "limit" in features:
            found["limit"]["at the same instant"] = ledger.most("limit", self.killed)
        if "unique" in features:
            self.push("unique", "again", KILL["unique"])
            again = jobs_of("unique", "again", KILL["unique"])
            found["unique"]["keys still locked"] = self.settle(again, 15)
        return found

    def logs(self) -> str:
        """Return the last lines of its programs."""
        return "".join(path.read_text()[-1000:] for path in self.stage.directory.glob("*.log"))

    def close(self) -> None:
        """Kill the workers and stop the server."""
        while self._workers:
            self.kill()
        self._marks.close()
        self.stage.close()

    def _environment(self) -> dict[str, str]:
        return {
            **self.variables,
            "REDIS_URL": self.stage.url,
            "JOBWIRE_REDIS_URL": self.stage.url,
            "BENCH_MARKS": str(self.stage.directory / "marks"),
            "BENCH_CONCURRENCY": str(SLOTS),
            "BENCH_LIFE": str(self.lives),
        }


def jobs_of(feature: str, run: str, shape: tuple[int, int, float]) -> dict[str, list[str]]:
    """Return the ids of the jobs that must run to their end, by kind."""
    count, size, _ = shape
    alone = [f"{run}.{number}" for number in range(count)]
    inner = [f"{one}.{number}" for one in alone for number in range(size)]
    if feature == "batch":
        return {"batch": inner, "callback": alone}
    return {feature: inner if feature == "chain" else alone}


def systems(names: Sequence[str]) -> list[System]:
    """Return the systems that can be used here, with the server of each."""
    found: list[System] = []
    if "jobwire" in names:
        paths = (ROOT / "python", ROOT / "conformance", ROOT)
        worker = [sys.executable, "-m", "jobwire", "worker", f"{TARGETS / 'toolbox_jobs.py'}:app"]
        found.append(
            System(
                "jobwire",
                f"jobwire {jobwire.__version__}",
                [*worker, "-c", "{slots}", "--log-level", "error"],
                [sys.executable, str(TARGETS / "toolbox_jobs.py")],
                clean_environment(PYTHONPATH=":".join(map(str, paths))),
            )
        )
    for peer in peers(ROOT / "build" / "peers", names):
        found.append(
            System(
                peer.package,
                f"{peer.package} {peer.version()}",
                peer.worker,
                peer.pusher(),
                peer.variables(),
            )
        )
    return found


def show(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; Markdown if it goes to a file or a program."""
    if not sys.stdout.isatty():
        lines = [head, ["---"] * len(head), *rows]
        text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        sys.stdout.write(f"{title}\n\n{text}\n")
        return
    table = Table(*head, title=title)
    for row in rows:
        table.add_row(*row)
    Console().print(table)


def main() -> int:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(prog=".ci/bench toolbox")
    parser.add_argument("--runs", type=int, default=3, help="samples of each speed [%(default)s]")
    parser.add_argument("--quick", action="store_true", help="1 sample, 3 kills")
    parser.add_argument("--kills", type=int, default=8, help="worker processes [%(default)s]")
    parser.add_argument("--apart", type=float, default=2, help="seconds [%(default)s]")
    parser.add_argument("--wait", type=float, default=90, help="seconds after them [%(default)s]")
    parser.add_argument("--only", action="append", choices=[*FEATURES], help="repeatable")
    parser.add_argument("--feature", action="append", choices=[*SPEED], help="of speed; repeatable")
    parser.add_argument("--json", action="store_true", help="all samples, for programs")
    options = parser.parse_args()
    if options.runs < 0 or options.kills < 0:
        parser.error("--runs and --kills must be at least 0")
    runs, kills = (1, 3) if options.quick else (options.runs, options.kills)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    note = Console(stderr=True, highlight=False).print
    speeds: dict[str, dict[str, list[float]]] = {feature: {} for feature in LABELS}
    after: dict[str, dict[str, dict[str, int]]] = {}
    failed, teams = False, systems(options.only or [*FEATURES])
    try:
        for team in teams:
            for _ in range(WORKERS):
                team.start()
        for run in range(-1, runs):  # the first is for warm workers, and not counted
            for feature in options.feature or SPEED:
                for team in teams:
                    if feature not in FEATURES[team.package]:
                        continue
                    try:
                        figure = team.speed(feature, f"run{run}", WARM if run < 0 else 1.0)
                    except (AssertionError, subprocess.SubprocessError) as error:
                        note(f"{feature} {run + 1}: {team.name}: no figure: {error}\n{team.logs()}")
                        failed = True
                        continue
                    if run >= 0:
                        note(f"{feature} {run + 1}: {team.name}: {figure:,.0f}")
                        speeds[feature].setdefault(team.name, []).append(figure)
                        if feature == "rate":
                            speeds["crowd"].setdefault(team.name, []).append(
                                team.crowd(f"run{run}")
                            )
        if kills:
            note(f"{kills} kills, then {options.wait:.0f} s")
            with ThreadPoolExecutor(len(teams)) as pool:
                found = {
                    team.name: pool.submit(team.survive, kills, options.apart, options.wait)
                    for team in teams
                }
            after = {name: future.result() for name, future in found.items()}
        server = f"valkey {teams[0].stage.client.info()['valkey_version']}"
    finally:
        for team in teams:
            team.close()
    around = (
        f"{datetime.now(UTC):%d %B %Y}, {server}, Python {platform.python_version()},"
        f" {os.cpu_count()} cores, load {os.getloadavg()[1]:.1f}"
    )
    if options.json:
        json.dump({"around": around, "speeds": speeds, "after": after}, sys.stdout, indent=1)
        return 1 if failed else 0
    names = [team.name for team in teams]
    rows = [
        [LABELS[feature], *(spread(by_name.get(name, ())) for name in names)]
        for feature, by_name in speeds.items()
        if by_name
    ]
    show(f"Speed, median (least to most) of {runs}: {around}", ["", *names], rows)
    kinds = dict.fromkeys(
        (feature, kind) for one in after.values() for feature in one for kind in one[feature]
    )
    rows = [
        [f"{feature}: {kind}", *(str(after[name].get(feature, {}).get(kind, "")) for name in names)]
        for feature, kind in sorted(kinds, key=lambda pair: [*SPEED].index(pair[0]))
    ]
    if after:
        shapes = "; ".join(f"{name} {count} x {size}" for name, (count, size, _) in KILL.items())
        show(f"{kills} times kill -9, then {options.wait:.0f} s ({shapes})", ["", *names], rows)
    return 1 if failed else 0


def spread(values: Sequence[float]) -> str:
    """Return the median, and the least and the most."""
    if not values:
        return ""
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


if __name__ == "__main__":
    sys.exit(main())
