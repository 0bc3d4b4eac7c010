"""What every way of fetching offers to those who run jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from jobwire.errors import MalformedPayload
from jobwire.protocol.reliable import InFlightJob
from jobwire.protocol.retry import Discard, Kill, Retry
from jobwire.protocol.wire import Command

__all__ = ["DONE", "Done", "Fetcher", "Outcome", "Requeue", "Unreadable"]


@dataclass(frozen=True, slots=True)
class Done:
    """The job succeeded.

    Attributes:
        after: Sent right behind the outcome: what the job leaves to be deleted.
    """

    after: Command | None = None


DONE = Done()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """It was no payload: it is buried as it is and does not count. [EXEC-3] [EXEC-4]"""

    problem: MalformedPayload


@dataclass(frozen=True, slots=True)
class Requeue:
    """It gave way to others, and goes to the head of its queue with this text. [ITER-4]"""

    text: bytes


Outcome: TypeAlias = Done | Retry | Kill | Discard | Unreadable | Requeue


class Fetcher(Protocol):
    """Gives jobs to one capsule and stores what became of them.

    A job that was taken occupies a slot until it is over, in whatever thread or task it runs.

    Attributes:
        needs_all_threads: Whether each slot needs a thread that waits in `take`, from the start.
        most_threads: How many threads it has work for.
    """

    needs_all_threads: bool
    most_threads: int

    def on_help_wanted(self, call: Callable[[], None]) -> None:
        """Have `call` called when jobs may wait for one more thread."""

    def take(self, over: bool) -> InFlightJob | None:
        """Return the next job, waiting for one; None once `close` was called. [FETCH-5]

        Args:
            over: Whether this thread has run the job that it took before, to its end.
        """

    def running(self, seconds: float) -> None:
        """The thread that just took a job expects to be busy with it for so long."""

    def settle(self, held: InFlightJob, outcome: Outcome, *, seconds: float) -> None:
        """Store the outcome of a job that ran for so many seconds."""

    def store(self, held: InFlightJob, outcome: Outcome, *, seconds: float) -> bool:
        """Store an outcome, waiting for it; return whether the job was still ours."""

    def hurry(self) -> None:
        """See to it that settled outcomes are stored soon, though nobody may fetch."""

    def free(self) -> None:
        """A job that was taken is over, and the thread that ran it does not come for another."""

    def put_back(self, held: Sequence[InFlightJob]) -> int:
        """Return unfinished jobs to their queues, to run next; say how many. [FETCH-6]"""

    def close(self) -> None:
        """Take no more jobs, and return those that nobody has started."""
