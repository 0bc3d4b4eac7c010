"""The dead set and how it is trimmed. [DEAD-1] [DEAD-2] [DEAD-3]"""

from __future__ import annotations

from dataclasses import dataclass

from jobwire.keys import Keys
from jobwire.wire import Batch, command

__all__ = ["Grave", "bury"]

MAX_AGE = 15_552_000.0  # seconds, 180 days
MAX_JOBS = 10_000


@dataclass(frozen=True, slots=True)
class Grave:
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


def bury(keys: Keys, text: bytes, grave: Grave) -> Batch:
    """Put a payload into the dead set, for a worker that holds nothing in Redis."""
    return Batch(
        [
            command("ZADD", keys.dead, grave.now, text),
            command("ZREMRANGEBYSCORE", keys.dead, "-inf", grave.oldest),
            command("ZREMRANGEBYRANK", keys.dead, 0, -grave.limit),
        ],
        atomic=True,
    )
