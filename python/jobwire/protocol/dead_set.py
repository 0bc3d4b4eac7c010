"""The dead set and how it is trimmed. [DEAD-1] [DEAD-2] [DEAD-3]"""

from __future__ import annotations

from dataclasses import dataclass

from jobwire.errors import MalformedPayload
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Batch, command

__all__ = ["DeadSetLimits", "dead_key", "kill"]

MAX_AGE = 15_552_000.0  # seconds, 180 days
MAX_JOBS = 10_000


def dead_key(keys: Keys, problem: MalformedPayload) -> str:
    """Return the set for bytes that are no payload. [EXEC-3] [EXEC-4]

    JSON that is no object must not get into the dead set: Sidekiq's API cannot list a set that
    holds one.
    """
    return keys.unreadable if problem.rule == "EXEC-4" else keys.dead


@dataclass(frozen=True, slots=True)
class DeadSetLimits:
    """A burial at epoch second `now`, and what it leaves of older ones.

    The set keeps `limit - 1` jobs: Sidekiq's own off-by-one, kept on purpose. [DEAD-3]
    """

    now: float
    limit: int = MAX_JOBS
    max_age: float = MAX_AGE

    @property
    def oldest(self) -> float:
        """Score up to which, inclusive, the dead are forgotten. [DEAD-2]"""
        return self.now - self.max_age


def kill(key: str, text: bytes, dead_limits: DeadSetLimits) -> Batch:
    """Put a payload into the dead set or its like, for a worker that holds nothing in Redis."""
    return Batch(
        [
            command("ZADD", key, dead_limits.now, text),
            command("ZREMRANGEBYSCORE", key, "-inf", dead_limits.oldest),
            command("ZREMRANGEBYRANK", key, 0, -dead_limits.limit),
        ],
        atomic=True,
    )
