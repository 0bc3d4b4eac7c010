"""The interface of the job source, for the code that runs jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from jobwire.protocol.reliable import InFlightJob

__all__ = ["JobSource", "SharedLead"]


class SharedLead(Protocol):
    """The part of a source whose threads share one leader.

    A job occupies a slot from `take` to its end, in whichever thread or task it runs.
    """

    def on_thread_wanted(self, start: Callable[[], None]) -> None:
        """Have `start` called when jobs may wait for one more thread."""

    def starting(self, expected: float) -> None:
        """Tell that this thread took a job and expects to run it for so many seconds."""

    def release(self, ran: float) -> None:
        """Free the slot of a job that ran for so many seconds outside of the fetching threads."""


class JobSource(Protocol):
    """Gives jobs to one capsule.

    Attributes:
        max_threads: Number of threads that it can use.
        lead: None if each slot is a thread that waits in `take`, from the start to the end.
    """

    max_threads: int

    @property
    def lead(self) -> SharedLead | None: ...

    @property
    def fetches(self) -> int:
        """Number of requests for jobs that were sent to Redis."""

    def step(self) -> object:
        """Return a value that changes with each fetch or wait; None while there is none to do."""

    def take(self, ran: float | None) -> InFlightJob | None:
        """Return the next job, waiting for one; None once `close` was called. [FETCH-5]

        Args:
            ran: Run time of the job that this thread ran since its last call, in seconds; None if
                it ran none, or gave it to a task.
        """

    def acknowledge(self, held: InFlightJob) -> bool:
        """End a job in Redis before it runs; True if no other process can get it any more.

        Raises:
            RedisTrouble: That is not known. The job runs elsewhere if Redis still has it.
        """

    def put_back(self, jobs: Sequence[InFlightJob]) -> int:
        """Return unfinished jobs to their queues, to run next; return their number. [FETCH-6]"""

    def close(self) -> None:
        """Take no more jobs, and return those that have not started."""
