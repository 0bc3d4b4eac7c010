"""Counters of executions and of deliveries. [STAT-1] [STAT-2] [STAT-4] [REL-12]"""

from __future__ import annotations

from dataclasses import dataclass

from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Batch, Command, Op, command

__all__ = ["DAY_TTL_S", "Deliveries", "count", "deliveries", "stat_keys"]

DAY_TTL_S = 157_680_000  # 5 * 365 days


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Totals of recoveries and of late outcomes, since the counters began. [REL-12]

    Attributes:
        recovered: Jobs that went back to their queues because their process had died, or had
            not renewed its lease in time.
        lost: Outcomes that came too late and were dropped. The job had been recovered by then,
            so it ran twice.
    """

    recovered: int
    lost: int


def deliveries(keys: Keys) -> Op[Deliveries]:
    """Return the counters of recoveries and of late outcomes. [REL-12]"""
    recovered, lost = yield command("MGET", keys.recovered, keys.lost)
    return Deliveries(int(recovered or 0), int(lost or 0))


def stat_keys(keys: Keys, day: str) -> list[str]:
    """Return the keys of the four counters of an outcome script, in the script's order."""
    return [
        keys.stat("processed"),
        keys.stat("processed", day),
        keys.stat("failed"),
        keys.stat("failed", day),
    ]


def count(keys: Keys, *, processed: int, failed: int, day: str) -> Batch:
    """Add to the counters, for a worker whose outcome steps do not do so themselves."""
    commands: list[Command] = []
    for kind, number in (("processed", processed), ("failed", failed)):
        commands += (
            command("INCRBY", keys.stat(kind), number),
            command("INCRBY", keys.stat(kind, day), number),
            command("EXPIRE", keys.stat(kind, day), DAY_TTL_S),
        )
    return Batch(commands)
