"""Parked jobs: their reasons, and their way back to the queues. [X-PARK]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jobwire.inspect.entry import Entry
from jobwire.inspect.filters import Filter
from jobwire.inspect.reading import ask, text
from jobwire.inspect.walking import SetWalk
from jobwire.protocol import parking
from jobwire.protocol.foreign import why_field
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Op, command

__all__ = ["ParkedJob", "Unparked", "page", "unpark", "walk"]


@dataclass(frozen=True, slots=True)
class ParkedJob:
    """A parked job; the score of its entry is the time at which it was parked.

    Attributes:
        entry: The job.
        reason: A feature such as `bid`, or `unknown`; empty if it is lost. [X-PARK-4]
    """

    entry: Entry
    reason: str


class Unparked(NamedTuple):
    """Numbers of jobs that were pushed to their queues, and that stay parked.

    A job stays if its payload names no queue, or if the key of its queue is not a list.
    """

    done: int
    left: int


def walk(keys: Keys) -> SetWalk:
    """Return a walk through the parked jobs, the oldest first."""
    return SetWalk(keys.parked, "parked", rising=True)


def page(
    keys: Keys, walking: SetWalk, only: Filter, reason: str | None, *, now: float
) -> Op[list[ParkedJob] | None]:
    """Return those jobs of the next page that fit; None at the end."""
    entries = yield from walking.next()
    if not entries:
        return None
    entries = [one for one in entries if only.matches(one, now=now)]
    if not entries:
        return []
    fields = [why_field(one.payload) for one in entries]
    (reply,) = yield from ask([command("HMGET", keys.parked_why, *fields)])
    reasons = reply if isinstance(reply, list) else [None] * len(entries)
    jobs = [
        ParkedJob(one, text(why) if isinstance(why, bytes) else "")
        for one, why in zip(entries, reasons, strict=True)
    ]
    return [job for job in jobs if reason in (None, job.reason)]


def unpark(keys: Keys, jobs: Sequence[ParkedJob]) -> Op[int]:
    """Push jobs to the queues that they name; return how many. [X-PARK-5]"""
    named = [(job.entry.payload, job.entry.queue) for job in jobs if job.entry.queue]
    return (yield from parking.unpark(keys, named))
