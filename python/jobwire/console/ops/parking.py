"""Parked jobs: their reasons, and their way back to the queues. [X-PARK]"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from jobwire.inspect.entry import Entry
from jobwire.inspect.filters import Filter
from jobwire.inspect.reading import ask, text
from jobwire.inspect.walking import SetWalk
from jobwire.protocol.foreign import why_field
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Arg, Op, Script, command

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
    """Push jobs to the queues that they name, with their exact bytes; return how many.

    For each job the step is atomic: it is removed and pushed, or it stays. [X-PARK-5]
    """
    queue_keys: dict[str, int] = {}
    words: list[Arg] = []
    for payload, queue in _named(jobs):
        number = queue_keys.setdefault(keys.queue(queue), len(queue_keys) + 1)
        words += (payload, number, queue, payload)
    if not words:
        return 0
    moved, _ = yield Script("promote", [keys.parked, keys.queues, *queue_keys], words)
    payloads = [payload for payload, _ in _named(jobs)]
    (scores,) = yield from ask([command("ZMSCORE", keys.parked, *payloads)])
    gone = [
        why_field(payload) for payload, score in zip(payloads, scores, strict=True) if score is None
    ]
    if gone:
        yield command("HDEL", keys.parked_why, *gone)
    return int(moved)


def _named(jobs: Sequence[ParkedJob]) -> Iterator[tuple[bytes, str]]:
    """Yield the payloads that name a queue, with it."""
    for job in jobs:
        if job.entry.queue:
            yield job.entry.payload, job.entry.queue
