"""Counters of executions. [STAT-1] [STAT-2]"""

from __future__ import annotations

from jobwire.keys import Keys
from jobwire.wire import Batch, Command, command

__all__ = ["DAY_TTL", "count", "stat_keys"]

DAY_TTL = 157_680_000  # seconds, 5 * 365 days


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
