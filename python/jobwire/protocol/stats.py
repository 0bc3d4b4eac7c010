"""Counters of executions and of deliveries. [STAT-1] [STAT-2] [REL-12]"""

from __future__ import annotations

from dataclasses import dataclass

from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Batch, Command, Op, command

__all__ = ["DAY_TTL", "Deliveries", "count", "deliveries", "stat_keys"]

DAY_TTL = 157_680_000  # seconds, 5 * 365 days


@dataclass(frozen=True, slots=True)
class Deliveries:
    """How often the reliable profile had to step in, ever. [REL-12]

    Attributes:
        recovered: Jobs that went back to their queues because their process had died, or had
            been silent beyond its lease.
        lost: Outcomes that came too late and were dropped: the job was somebody else's by then,
            so that it ran twice.
    """

    recovered: int
    lost: int


def deliveries(keys: Keys) -> Op[Deliveries]:
    """Return the counters of recoveries and of late outcomes. [REL-12]"""
    recovered, lost = yield command("MGET", keys.recovered, keys.lost)
    return Deliveries(int(recovered or 0), int(lost or 0))


def stat_keys(keys: Keys, day: str) -> list[str]:
    """Return the four counters that an outcome script writes, in its order."""
    return [
        keys.stat("processed"),
        keys.stat("processed", day),
        keys.stat("failed"),
        keys.stat("failed", day),
    ]


def count(keys: Keys, *, processed: int, failed: int, day: str) -> Batch:
    """Add to the counters, for a worker whose outcomes do not count themselves."""
    commands: list[Command] = []
    for kind, number in (("processed", processed), ("failed", failed)):
        commands += (
            command("INCRBY", keys.stat(kind), number),
            command("INCRBY", keys.stat(kind, day), number),
            command("EXPIRE", keys.stat(kind, day), DAY_TTL),
        )
    return Batch(commands)
