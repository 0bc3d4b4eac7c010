"""Outcomes of a job, in addition to the decisions of `jobwire.protocol.retry`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from jobwire.errors import MalformedPayload
from jobwire.protocol.retry import Discard, Kill, Retry
from jobwire.protocol.wire import Command

__all__ = [
    "ACKNOWLEDGED",
    "DONE",
    "AlreadyAcknowledged",
    "Cancelled",
    "Done",
    "Expired",
    "Outcome",
    "Requeue",
    "Snoozed",
    "Unreadable",
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
class Snoozed:
    """The job put itself off: it goes to the schedule with this text. [X-TIME-4]"""

    text: bytes
    at: float  # epoch seconds


@dataclass(frozen=True, slots=True)
class Expired:
    """The job came too late and did not run; that is counted. [X-TIME-2] [X-TIME-3]"""


@dataclass(frozen=True, slots=True)
class Cancelled:
    """The job was cancelled; the mark of this id goes in the same step. [X-CANCEL-5]"""

    jid: str


@dataclass(frozen=True, slots=True)
class AlreadyAcknowledged:
    """The job ended in Redis before it ran, so only its result is left to store."""


ACKNOWLEDGED = AlreadyAcknowledged()

Outcome: TypeAlias = (
    Done
    | Retry
    | Kill
    | Discard
    | Unreadable
    | Requeue
    | AlreadyAcknowledged
    | Snoozed
    | Expired
    | Cancelled
)
