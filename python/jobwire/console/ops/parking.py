"""Parked jobs: their reasons, and their way back to the queues. [X-PARK]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jobwire.console.ops.paging import digest
from jobwire.inspect.entry import Entry, entry
from jobwire.inspect.filters import Filter
from jobwire.inspect.reading import ask, items, score, text, whole
from jobwire.inspect.walking import SetWalk
from jobwire.protocol import parking
from jobwire.protocol.foreign import why_field
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Op, command

__all__ = [
    "ParkedJob",
    "ParkedPage",
    "Unparked",
    "at",
    "page",
    "reason_of",
    "some",
    "unpark",
    "walk",
]


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


@dataclass(frozen=True, slots=True)
class ParkedPage:
    """Some parked jobs, the oldest first.

    Attributes:
        jobs: The jobs.
        total: Number of all parked jobs.
    """

    jobs: Sequence[ParkedJob]
    total: int


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
    jobs = yield from _with_reasons(keys, entries)
    return [job for job in jobs if reason in (None, job.reason)]


def some(keys: Keys, *, start: int, count: int) -> Op[ParkedPage]:
    """Return some parked jobs by their position, from 0, in two round trips."""
    total, flat = yield from ask(
        [
            command("ZCARD", keys.parked),
            command("ZRANGE", keys.parked, start, start + count - 1, "WITHSCORES"),
        ]
    )
    jobs = yield from _with_reasons(keys, _entries(flat))
    return ParkedPage(jobs, whole(total))


def at(keys: Keys, moment: float, named: str, secret: bytes) -> Op[ParkedJob | None]:
    """Return the parked job with this score and the digest that a page gave it; None if it is gone.

    Args:
        keys: Key names.
        moment: Its score.
        named: The result of `paging.digest`.
        secret: Key of the digests.
    """
    step = command("ZRANGE", keys.parked, moment, moment, "BYSCORE", "WITHSCORES")
    (flat,) = yield from ask([step])
    return next(
        (ParkedJob(one, "") for one in _entries(flat) if digest(one, secret) == named), None
    )


def reason_of(keys: Keys, job: Entry) -> Op[str]:
    """Return the reason of a parked job; empty if it is lost."""
    (found,) = yield from _with_reasons(keys, [job])
    return found.reason


def _entries(flat: object) -> list[Entry]:
    replies = items(flat)
    return [
        entry(member, "parked", score(at))
        for member, at in zip(replies[::2], replies[1::2], strict=True)
    ]


def _with_reasons(keys: Keys, entries: Sequence[Entry]) -> Op[list[ParkedJob]]:
    if not entries:
        return []
    fields = [why_field(one.payload) for one in entries]
    (reply,) = yield from ask([command("HMGET", keys.parked_why, *fields)])
    reasons = reply if isinstance(reply, list) else [None] * len(entries)
    return [
        ParkedJob(one, text(why) if isinstance(why, bytes) else "")
        for one, why in zip(entries, reasons, strict=True)
    ]


def unpark(keys: Keys, jobs: Sequence[ParkedJob]) -> Op[int]:
    """Push jobs to the queues that they name; return how many. [X-PARK-5]"""
    named = [(job.entry.payload, job.entry.queue) for job in jobs if job.entry.queue]
    return (yield from parking.unpark(keys, named))
