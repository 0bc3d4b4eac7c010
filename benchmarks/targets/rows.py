"""The targets: what is measured, of whom, and what is aimed at."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.targets.stage import Stage
from benchmarks.targets.teams import Team

__all__ = ["JOBWIRE", "SIDEKIQ", "TARGETS", "Run", "Sample", "Target", "runs"]

JOBWIRE, SIDEKIQ = "jobwire", "Sidekiq"
YJIT = 2.0  # how much faster Sidekiq drains with YJIT, which Debian's Ruby comes without

Sample = dict[str, float]
Medians = Mapping[str, Mapping[str, float]]  # team's first word -> measure -> median


@dataclass(frozen=True)
class Run:
    """What one sample takes.

    Attributes:
        kind: Who has no counterpart of this kind is left out.
        jobs: Of jobwire; who has a smaller share gets fewer.
        measure: Returns figures by their names.
        whole: Whether all get as many.
    """

    kind: str
    jobs: int
    measure: Callable[[Stage, Team, int], Sample]
    whole: bool = False


@dataclass(frozen=True)
class Target:
    """One row of the table.

    Attributes:
        number: Its place.
        title: What is measured.
        kind: Of the run that it is from.
        figure: Which of that run's figures.
        unit: What it is in.
        aim: For people.
        holds: Whether medians reach it; None if there is nothing to compare with.
        more: Whether more is better.
    """

    number: int
    title: str
    kind: str
    figure: str
    unit: str
    aim: str
    holds: Callable[[Medians], bool | None]
    more: bool = True


def _drain(kind: str = "Nothing", **options: Any) -> Callable[[Stage, Team, int], Sample]:
    def measure(stage: Stage, team: Team, jobs: int) -> Sample:
        drained = team.drain(stage, kind, jobs, **options)
        figures = {
            "rate": drained.rate,
            "cpu_us": drained.cpu_us,
            "server_s": drained.server_us / 100,  # seconds for 10,000 jobs
            "trips": drained.trips,
            "idle_mib": drained.idle_mib,
            "after_mib": drained.after_mib,
        }
        found = {name: value for name, value in figures.items() if value}  # 0: not looked at
        if drained.idle_mib:
            found["grown"] = drained.after_mib / drained.idle_mib * 100 - 100
        if kind in ("Waiting", "AsyncWaiting"):
            found["ideal"] = drained.rate / (options["concurrency"] / 0.01) * 100
        return found

    return measure


def _enqueue(how: str) -> Callable[[Stage, Team, int], Sample]:
    def measure(stage: Stage, team: Team, jobs: int) -> Sample:
        seconds = team.enqueue(stage, how, jobs)
        found = {"rate": jobs / seconds}
        if stage.client.type("queue:default") == b"list":
            found["bytes"] = float(len(stage.client.lindex("queue:default", -1)))
        return found

    return measure


def _lone(stage: Stage, team: Team, jobs: int) -> Sample:
    seconds = sorted(team.lone(stage, jobs))
    return {
        "p50_ms": median(seconds) * 1e3,
        "p99_ms": seconds[min(int(len(seconds) * 0.99), len(seconds) - 1)] * 1e3,
    }


def _boot(stage: Stage, team: Team, jobs: int) -> Sample:
    return {"boot_s": team.boot(stage)}


def runs() -> list[Run]:
    """Return what is measured, in this order."""
    waiting = [
        Run(f"waiting_{slots}", 150 * slots, _drain("Waiting", concurrency=slots, marks=True), True)
        for slots in (10, 50, 100)
    ]
    return [
        Run("drain", 100_000, _drain()),
        Run("logged", 100_000, _drain(log="info")),
        Run("processes", 100_000, _drain(processes=2)),
        Run("failing", 20_000, _drain("Failing")),
        Run("scheduled", 100_000, _drain(due=True)),
        Run("one", 10_000, _enqueue("one"), True),
        Run("async", 10_000, _enqueue("async"), True),
        Run("bulk", 100_000, _enqueue("bulk")),
        Run("lone", 60, _lone, True),
        *waiting,
        Run("waiting_async", 50_000, _drain("AsyncWaiting", concurrency=1_000, marks=True)),
        Run("boot", 1, _boot, True),
    ]


def _beside(figure: str, times: float) -> Callable[[Medians], bool | None]:
    """At least so many times what Sidekiq does."""

    def holds(medians: Medians) -> bool | None:
        if figure not in medians.get(SIDEKIQ, {}):
            return None
        return medians[JOBWIRE][figure] >= times * medians[SIDEKIQ][figure]

    return holds


def _least(figure: str, bound: float) -> Callable[[Medians], bool | None]:
    return lambda medians: medians[JOBWIRE][figure] >= bound


def _most(figure: str, bound: float) -> Callable[[Medians], bool | None]:
    return lambda medians: medians[JOBWIRE][figure] <= bound


def _as_sidekiq(figure: str) -> Callable[[Medians], bool | None]:
    def holds(medians: Medians) -> bool | None:
        if figure not in medians.get(SIDEKIQ, {}):
            return None
        return medians[JOBWIRE][figure] <= medians[SIDEKIQ][figure]

    return holds


def _rate(number: int, title: str, kind: str, aim: str, holds: Any) -> Target:
    return Target(number, title, kind, "rate", "jobs/s", aim, holds)


TARGETS = [
    _rate(
        *(1, "drain, 1 process, 10 threads, log at WARN", "drain"),
        *("twice Sidekiq with YJIT: 4 times without", _beside("rate", 2 * YJIT)),
    ),
    _rate(
        *(2, "the same, with a start and a done line for each job", "logged"),
        *("4 times Sidekiq", _beside("rate", 4)),
    ),
    _rate(
        *(3, "the same as 1, 2 processes", "processes"),
        *("twice Sidekiq with YJIT: 4 times without", _beside("rate", 2 * YJIT)),
    ),
    _rate(
        *(4, "jobs that raise and are stored for retry", "failing"),
        *("4 times Sidekiq, 11,000", lambda m: _failing(m)),
    ),
    _rate(
        *(5, "scheduled jobs that are due: promote and run", "scheduled"),
        *("6 times Sidekiq, 24,000", lambda m: _scheduled(m)),
    ),
    _rate(
        *(6, "enqueue, one by one; client and server on a core each", "one"),
        *("26,000", _least("rate", 26_000)),
    ),
    _rate(7, "enqueue, asyncio, 100 callers", "async", "30,000", _least("rate", 30_000)),
    _rate(8, "enqueue, bulk, 1,000 at a time", "bulk", "370,000", _least("rate", 370_000)),
    Target(
        *(9, "from enqueue to start, idle worker, median", "lone", "p50_ms", "ms"),
        *("Sidekiq's", _as_sidekiq("p50_ms"), False),
    ),
    Target(
        *(9, "the same, 99 of 100", "lone", "p99_ms", "ms", "3", _most("p99_ms", 3.0), False),
    ),
    *(
        Target(
            *(10, f"jobs that wait for 10 ms, {slots} threads", f"waiting_{slots}", "ideal", "%"),
            *(f"{share} % of what threads that only wait could do", _least("ideal", share)),
        )
        for slots, share in ((10, 97), (50, 96), (100, 94))
    ),
    _rate(
        *(11, "async jobs that wait for 10 ms, concurrency 1,000", "waiting_async"),
        *("25,000", _least("rate", 25_000)),
    ),
    Target(
        *(12, "round trips a job, in 1", "drain", "trips", ""),
        *("0.05", _most("trips", 0.05), False),
    ),
    Target(
        *(12, "CPU of the server for 10,000 jobs, in 1", "drain", "server_s", "s"),
        *("0.06", _most("server_s", 0.06), False),
    ),
    Target(
        *(13, "memory (PSS) of an idle worker", "drain", "idle_mib", "MiB"),
        *("28", _most("idle_mib", 28), False),
    ),
    Target(
        *(13, "growth of that with 100,000 jobs", "drain", "grown", "%"),
        *("10", _most("grown", 10), False),
    ),
    Target(
        *(13, "bytes of a queued job", "bulk", "bytes", ""),
        *("Sidekiq's", _as_sidekiq("bytes"), False),
    ),
    Target(
        *(14, "from the start of the process to its first job", "boot", "boot_s", "s"),
        *("0.35", _most("boot_s", 0.35), False),
    ),
]


def _failing(medians: Medians) -> bool | None:
    return medians[JOBWIRE]["rate"] >= 11_000 and _beside("rate", 4)(medians)


def _scheduled(medians: Medians) -> bool | None:
    return medians[JOBWIRE]["rate"] >= 24_000 and _beside("rate", 6)(medians)
