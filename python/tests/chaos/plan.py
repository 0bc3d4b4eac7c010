"""Jobs and disturbances of a run, all from one seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["DISTURBANCES", "Job", "disturbances", "jobs"]

GAP = 0.6  # seconds between two disturbances, on average
LONG_PAUSE = 65.0  # seconds: more than a lease

# Name to weight. `Storm` has a method for each.
DISTURBANCES = {
    "kill": 16,
    "kill_at_command": 16,
    "terminate": 10,
    "pause": 10,
    "cut": 16,
    "cut_at_command": 18,
    "refuse_command": 10,
    "refuse_connections": 4,
    "flush_scripts": 6,
    "restart_redis": 4,
    "crash_redis": 4,
}


@dataclass(frozen=True)
class Job:
    """One job: its number is its first argument.

    Attributes:
        after: Seconds from now at which it is due; None for at once.
    """

    number: int
    kind: str
    args: Sequence[Any]
    queue: str
    after: float | None = None

    @property
    def dies(self) -> bool:
        """True if the job ends in the dead set."""
        return self.kind == "Doomed"


def jobs(count: int, *, seed: int, seconds: float) -> list[Job]:
    """Return the jobs of a run that lasts this many seconds."""
    jitter = random.Random(f"jobs {seed}")
    return [_job(number, jitter, seconds) for number in range(count)]


def _job(number: int, jitter: random.Random, seconds: float) -> Job:
    queue = jitter.choice(["high", "low"])
    draw = jitter.random()
    if draw < 0.55:
        return Job(number, "Quick", [number], queue)
    if draw < 0.65:
        return Job(number, "Quick", [number], queue, after=jitter.uniform(0, seconds / 2))
    if draw < 0.70:
        return Job(number, "Slow", [number, round(jitter.uniform(0.05, 0.8), 3)], queue)
    if draw < 0.73:
        return Job(number, "Walk", [number, jitter.randint(1, 40)], queue)
    if draw < 0.83:
        return Job(number, "Async", [number, round(jitter.uniform(0.0, 0.2), 3)], queue)
    if draw < 0.95:
        return Job(number, "Flaky", [number, jitter.choice([1, 1, 2])], queue)
    return Job(number, "Doomed", [number], queue)


def disturbances(*, seed: int, seconds: float) -> Iterator[tuple[float, str, random.Random]]:
    """Yield seconds from the start, the disturbance of that time, and a random generator for it."""
    jitter = random.Random(f"disturbances {seed}")
    at = jitter.expovariate(1 / GAP)
    long_pause = seconds / 5 if seconds > 2 * LONG_PAUSE else float("inf")
    while at < seconds:
        if at > long_pause:
            long_pause = float("inf")
            yield at, "long_pause", jitter
        (what,) = jitter.choices([*DISTURBANCES], [*DISTURBANCES.values()])
        yield at, what, jitter
        at += jitter.expovariate(1 / GAP)
