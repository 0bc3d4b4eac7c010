"""Interfaces of the job source and the outcome sink, for the code that runs jobs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from jobwire.errors import MalformedPayload
from jobwire.protocol.reliable import InFlightJob
from jobwire.protocol.results import Kept
from jobwire.protocol.retry import Discard, Kill, Retry
from jobwire.protocol.wire import Command

__all__ = [
    "ACKNOWLEDGED",
    "DONE",
    "Acknowledged",
    "Done",
    "Dropped",
    "JobSource",
    "Later",
    "Outcome",
    "OutcomeSink",
    "PeriodicCheck",
    "PeriodicChecks",
    "Requeue",
    "SharedLead",
    "Unreadable",
    "Withdrawn",
]


@dataclass(frozen=True, slots=True)
class Done:
    """The job succeeded.

    Attributes:
        after: Sent right after the outcome: delete the data that the job leaves in Redis.
    """

    after: tuple[Command, ...] = ()


DONE = Done()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The text is not a payload: it is stored as it is and does not count. [EXEC-3] [EXEC-4]"""

    problem: MalformedPayload


@dataclass(frozen=True, slots=True)
class Requeue:
    """The job gave way to others, and goes to the head of its queue with this text. [ITER-4]"""

    text: bytes


@dataclass(frozen=True, slots=True)
class Later:
    """The job put itself off: it goes to the schedule with this text. [X-TIME-4]"""

    text: bytes
    at: float  # epoch seconds


@dataclass(frozen=True, slots=True)
class Dropped:
    """The job came too late and did not run; that is counted. [X-TIME-2] [X-TIME-3]"""


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """The job was cancelled; the mark of this id goes in the same step. [X-CANCEL-5]"""

    jid: str


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The job ended in Redis before it ran, so only its result is left to store."""


ACKNOWLEDGED = Acknowledged()

Outcome: TypeAlias = (
    Done
    | Retry
    | Kill
    | Discard
    | Unreadable
    | Requeue
    | Acknowledged
    | Later
    | Dropped
    | Withdrawn
)


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


class OutcomeSink(Protocol):
    """Stores the outcomes of jobs. One per process."""

    def record(self, held: InFlightJob, outcome: Outcome, kept: Kept | None = None) -> None:
        """Store the outcome of a job, at once or soon, together with its result. [X-RESULT-2]"""

    def store(self, held: InFlightJob, outcome: Outcome, kept: Kept | None = None) -> bool:
        """Store an outcome and wait for that; return True if the job was still held."""

    def ran(self, *, failed: bool, kept: Kept | None = None) -> None:
        """Count the end of a job that was acknowledged before it ran, and store its result."""

    def flush_soon(self) -> None:
        """Do not let recorded outcomes wait for a fetch.

        Nothing to do for a sink whose `record` stores at once, which is the default.
        """
        return


PeriodicCheck: TypeAlias = Callable[[], float | None]
"""Checks something; returns in how many seconds to call it again, None for not before `wake`."""


class PeriodicChecks(Protocol):
    """The thread that calls periodic checks. One per process.

    Attributes:
        awake: True if all checks are called every few milliseconds now.
    """

    @property
    def awake(self) -> bool: ...

    def add_periodic_check(self, check: PeriodicCheck) -> None:
        """Have a check called after each `wake`, and again after as many seconds as it returns."""

    def wake(self) -> None:
        """Have all checks called soon."""
