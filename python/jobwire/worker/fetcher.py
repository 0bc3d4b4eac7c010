"""What every way of fetching offers to the threads that run jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from jobwire.errors import MalformedPayload
from jobwire.reliable import Held
from jobwire.retry import Bury, Discard, Retry

__all__ = ["Done", "Fetcher", "Outcome", "Unreadable"]


@dataclass(frozen=True, slots=True)
class Done:
    """The job succeeded."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """It was no payload: it is buried as it is and does not count. [EXEC-3] [EXEC-4]"""

    problem: MalformedPayload


Outcome: TypeAlias = Done | Retry | Bury | Discard | Unreadable


class Fetcher(Protocol):
    """Gives jobs to one capsule and stores what became of them."""

    def take(self) -> Held | None:
        """Return the next job, waiting for one; None once `close` was called. [FETCH-5]"""

    def settle(self, held: Held, outcome: Outcome, *, seconds: float) -> None:
        """Store the outcome of a job that ran for so many seconds."""

    def put_back(self, held: Sequence[Held]) -> int:
        """Return unfinished jobs to their queues, to run next; say how many. [FETCH-6]"""

    def close(self) -> None:
        """Take no more jobs, and return those that nobody has started."""
