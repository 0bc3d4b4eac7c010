"""The dead set and its limits. [DEAD-1] [DEAD-2] [DEAD-3]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from jobwire.errors import MalformedPayload
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Batch, Command, command

__all__ = ["DeadSetLimits", "dead_key", "dead_place", "kill", "trim"]

MAX_AGE_S = 15_552_000.0  # 180 days
MAX_JOBS = 10_000


def dead_place(problem: MalformedPayload) -> Literal["dead", "unreadable"]:
    """Return the set for bytes that are not a payload. [EXEC-3] [EXEC-4] [EXEC-12]

    JSON that is not an object must not get into the dead set, because Sidekiq's API cannot list
    a set that holds such a member.
    """
    return "unreadable" if problem.rule == "EXEC-4" else "dead"


def dead_key(keys: Keys, problem: MalformedPayload) -> str:
    """Return the key of this set."""
    return keys.unreadable if dead_place(problem) == "unreadable" else keys.dead


@dataclass(frozen=True, slots=True)
class DeadSetLimits:
    """Limits of the dead set: `limit` jobs, none dead for more than `max_age` seconds at `now`.

    The set keeps `limit - 1` jobs, which is Sidekiq's own off-by-one. [DEAD-3]
    """

    now: float
    limit: int = MAX_JOBS
    max_age: float = MAX_AGE_S

    @property
    def oldest(self) -> float:
        """Epoch second; members with this score or a lower one are removed. [DEAD-2]"""
        return self.now - self.max_age


def kill(key: str, text: bytes, dead_limits: DeadSetLimits) -> Batch:
    """Put a payload into the dead set `key`, for a worker without a private hash."""
    return Batch(
        [command("ZADD", key, dead_limits.now, text), *trim(key, dead_limits)], atomic=True
    )


def trim(key: str, dead_limits: DeadSetLimits) -> list[Command]:
    """Return the commands that trim the dead set `key` after an insertion. [DEAD-2] [DEAD-3]"""
    return [
        command("ZREMRANGEBYSCORE", key, "-inf", dead_limits.oldest),
        command("ZREMRANGEBYRANK", key, 0, -dead_limits.limit),
    ]
