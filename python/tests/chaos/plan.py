"""Jobs and disturbances of a run, all from one seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["DISTURBANCES", "ODD_FAILURES", "ROGUES", "Job", "disturbances", "jobs", "phase"]

GAPS = {"storm": 0.6, "lull": 3.0}  # seconds between two disturbances, on average
CYCLE = 100.0  # seconds: a storm, then a lull, in which processes live long enough for an audit
STORM = 0.6  # share of a cycle
LONG_PAUSE = 65.0  # seconds: more than a lease

# Name to weight in a storm and in a lull. `Storm` has a method for each.
DISTURBANCES = {
    "kill": (16, 0),
    "kill_at_command": (16, 0),
    "terminate": (10, 0),
    "pause": (10, 0),
    "cut": (16, 0),
    "cut_at_command": (18, 0),
    "refuse_command": (10, 0),
    "refuse_connections": (4, 0),
    "flush_scripts": (6, 1),
    "restart_redis": (4, 0),
    "crash_redis": (4, 0),
    "snapshot": (3, 1),
    "promote": (3, 1),
    "delete_owners": (4, 2),
    "retype_owners": (3, 2),
    "delay": (6, 2),
    "late_script": (8, 4),
}
ROGUES = ("exit", "interrupt", "stop the loop", "cancel all")
ODD_FAILURES = ("exit", "no text", "odd text", "surrogates", "odd class", "huge delay")


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
    if draw < 0.94:
        return Job(number, "Flaky", [number, jitter.choice([1, 1, 2])], queue)
    if draw < 0.945:
        return Job(number, "Rogue", [number, jitter.choice(ROGUES)], queue)
    if draw < 0.95:
        return Job(number, "Odd", [number, jitter.choice(ODD_FAILURES)], queue)
    return Job(number, "Doomed", [number], queue)


def phase(at: float, seconds: float) -> str:
    """Return the name of the phase at this time of a run."""
    cycle = min(seconds, CYCLE)
    return "storm" if at % cycle < STORM * cycle else "lull"


def disturbances(*, seed: int, seconds: float) -> Iterator[tuple[float, str, random.Random]]:
    """Yield seconds from the start, the disturbance of that time, and a random generator for it."""
    jitter = random.Random(f"disturbances {seed}")
    long_pause = seconds / 5 if seconds > 2 * LONG_PAUSE else float("inf")
    at = jitter.expovariate(1 / GAPS["storm"])
    while at < seconds:
        if at > long_pause:
            long_pause = float("inf")
            yield at, "long_pause", jitter
        now = phase(at, seconds)
        weights = [storm if now == "storm" else lull for storm, lull in DISTURBANCES.values()]
        (what,) = jitter.choices([*DISTURBANCES], weights)
        yield at, what, jitter
        at += jitter.expovariate(1 / GAPS[now])
