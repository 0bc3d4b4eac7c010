"""The targets: the figures, the teams that are measured, and the limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from benchmarks.targets.judge import SIDEKIQ, YJIT, Bar, Sense
from benchmarks.targets.stage import SampleServer
from benchmarks.targets.teams import Setup, Team

__all__ = ["TARGETS", "Run", "Sample", "Target", "runs"]

HUEY, BEE_QUEUE = ("huey",), ("bee-queue",)
PYTHON = ("huey", "dramatiq", "celery", "rq", "arq", "taskiq")
WITHOUT_YJIT, WITH_YJIT = (SIDEKIQ,), (YJIT,)
FASTER = 2.0  # about the factor by which YJIT makes a drain faster
SIDEKIQS = (SIDEKIQ, YJIT)  # the better one counts

Sample = dict[str, float]


@dataclass(frozen=True)
class Run:
    """The parameters of one sample.

    Attributes:
        kind: A team without a counterpart of this kind is left out.
        jobs: Number of jobs of jobwire; a team with a smaller share gets fewer.
        measure: Returns figures by their names.
        whole: True if all teams get the same number.
    """

    kind: str
    jobs: int
    measure: Callable[[SampleServer, Team, int], Sample]
    whole: bool = False


@dataclass(frozen=True)
class Target:
    """One row of the table.

    Attributes:
        number: Its place in the table.
        title: The name of the figure in the table.
        kind: The kind of the run that measures it.
        figure: The name of the run's figure.
        unit: The unit of the figure.
        aim: The target as text.
        bars: The limits of the median; all have to hold.
        sense: The direction of the limits.
    """

    number: int
    title: str
    kind: str
    figure: str
    unit: str
    aim: str
    bars: tuple[Bar, ...]
    sense: Sense = "least"


def _drain(kind: str = "Nothing", **options: Any) -> Callable[[SampleServer, Team, int], Sample]:
    how = Setup(**options)

    def measure(stage: SampleServer, team: Team, jobs: int) -> Sample:
        drained = team.drain(stage, kind, jobs, how)
        figures = {
            "rate": drained.rate,
            "cpu_us": drained.cpu_us,
            "server_s": drained.server_us / 100,  # seconds for 10,000 jobs
            "trips": drained.trips,
            "idle_mib": drained.idle_mib,
            "after_mib": drained.after_mib,
        }
        sample = {name: value for name, value in figures.items() if value}  # 0: not measured
        if drained.idle_mib:
            sample["grown"] = drained.after_mib / drained.idle_mib * 100 - 100
        if kind in ("Waiting", "AsyncWaiting"):
            sample["ideal"] = drained.rate / (how.concurrency / 0.01) * 100
        return sample

    return measure


def _enqueue(how: str) -> Callable[[SampleServer, Team, int], Sample]:
    def measure(stage: SampleServer, team: Team, jobs: int) -> Sample:
        seconds = team.enqueue(stage, how, jobs)
        sample = {"rate": jobs / seconds}
        if stage.client.type("queue:default") == b"list":
            sample["bytes"] = float(len(stage.client.lindex("queue:default", -1)))
        return sample

    return measure


def _lone(stage: SampleServer, team: Team, jobs: int) -> Sample:
    seconds = sorted(team.lone(stage, jobs))
    return {
        "p50_ms": median(seconds) * 1e3,
        "p99_ms": seconds[min(int(len(seconds) * 0.99), len(seconds) - 1)] * 1e3,
    }


def _boot(stage: SampleServer, team: Team, jobs: int) -> Sample:
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


def _rate(number: int, title: str, kind: str, aim: str, *bars: Bar) -> Target:
    return Target(number, title, kind, "rate", "jobs/s", aim, bars)


TARGETS = [
    _rate(
        *(1, "drain, 1 process, 10 threads, log at WARN", "drain"),
        *("twice Sidekiq with YJIT", Bar(2, WITH_YJIT, FASTER)),
    ),
    _rate(
        *(2, "the same, with a start and a done line for each job", "logged"),
        *("4 times Sidekiq", Bar(4, SIDEKIQS)),
    ),
    _rate(
        *(3, "the same as 1, 2 processes", "processes"),
        *("twice Sidekiq with YJIT", Bar(2, WITH_YJIT, FASTER)),
    ),
    _rate(
        *(4, "jobs that raise and are stored for retry", "failing"),
        *("4 times Sidekiq with YJIT, ahead of bee-queue", Bar(4, WITH_YJIT), Bar(1, BEE_QUEUE)),
    ),
    _rate(
        *(5, "scheduled jobs that are due: promote and run", "scheduled"),
        *("6 times Sidekiq, ahead of bee-queue", Bar(6, SIDEKIQS), Bar(1, BEE_QUEUE)),
    ),
    _rate(
        *(6, "enqueue, one by one; client and server on a core each", "one"),
        *("1.2 times huey, and Sidekiq without YJIT", Bar(1.2, HUEY), Bar(1, WITHOUT_YJIT)),
    ),
    _rate(
        *(7, "enqueue, asyncio, 100 callers", "async"),
        *("30,000, and 4 times the best Python queue", Bar(30_000), Bar(4, PYTHON)),
    ),
    _rate(
        *(8, "enqueue, bulk, 1,000 at a time", "bulk"),
        *("Sidekiq with YJIT", Bar(1, WITH_YJIT)),
    ),
    Target(
        *(9, "from enqueue to start, idle worker, median", "lone", "p50_ms", "ms"),
        *("Sidekiq's", (Bar(1, SIDEKIQS),), "most"),
    ),
    Target(
        *(9, "the same, 99 of 100", "lone", "p99_ms", "ms", "3", (Bar(3),), "most"),
    ),
    *(
        Target(
            *(10, f"jobs that wait for 10 ms, {slots} threads", f"waiting_{slots}", "ideal", "%"),
            *(f"{share} % of the rate of threads that only wait", (Bar(share),)),
        )
        for slots, share in ((10, 97), (50, 96), (100, 94))
    ),
    _rate(
        *(11, "async jobs that wait for 10 ms, concurrency 1,000", "waiting_async"),
        *("25,000", Bar(25_000)),
    ),
    Target(
        *(12, "round trips a job, in 1", "drain", "trips", ""),
        *("0.05", (Bar(0.05),), "most"),
    ),
    Target(
        *(12, "CPU of the server for 10,000 jobs, in 1", "drain", "server_s", "s"),
        *("0.06", (Bar(0.06),), "most"),
    ),
    Target(
        *(13, "memory (PSS) of an idle worker", "drain", "idle_mib", "MiB"),
        *("28", (Bar(28),), "most"),
    ),
    Target(
        *(13, "growth of that with 100,000 jobs", "drain", "grown", "%"),
        *("10", (Bar(10),), "most"),
    ),
    Target(
        *(13, "bytes of a queued job", "bulk", "bytes", ""),
        *("Sidekiq's", (Bar(1, SIDEKIQS),), "same"),
    ),
    Target(
        *(14, "from the start of the process to its first job", "boot", "boot_s", "s"),
        *("0.35", (Bar(0.35),), "most"),
    ),
]
