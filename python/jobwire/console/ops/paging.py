"""Pages of a place by position, and the entries that a page named."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from jobwire.console.ops.selection import check_place, place_key
from jobwire.inspect.entry import QUEUE, Entry, SetName, entry
from jobwire.inspect.processes import InFlightSummary, Work, held_by, read_works, work_records
from jobwire.inspect.reading import ask, items, raw, score, whole
from jobwire.inspect.sets import fetch
from jobwire.inspect.summary import members
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Op, command

__all__ = [
    "HeldPage",
    "PlacePage",
    "RunningPage",
    "digest",
    "entry_at",
    "given_up",
    "held",
    "job_near",
    "page",
    "running",
]

WINDOW = 500  # jobs of a queue, on each side of the position where one was seen


@dataclass(frozen=True, slots=True)
class PlacePage:
    """Some entries of a place, in order.

    Attributes:
        total: Number of entries in the place.
        start: Position of the first one, from 0.
        entries: The entries.
    """

    total: int
    start: int
    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class RunningPage:
    """Some of the jobs in execution, the longest running ones first.

    Attributes:
        total: Number of jobs in execution.
        works: Those of the page.
    """

    total: int
    works: Sequence[Work]


@dataclass(frozen=True, slots=True)
class HeldPage:
    """Some of the processes that hold jobs, by identity.

    Attributes:
        total: Number of processes that may hold jobs.
        jobs: Number of jobs that they hold together.
        holdings: Those of the page.
    """

    total: int
    jobs: int
    holdings: Sequence[InFlightSummary]


def running(keys: Keys, *, start: int, count: int) -> Op[RunningPage]:
    """Return some of the jobs in execution; only the jobs of the page are decoded."""
    records = yield from work_records(keys)
    works = yield from read_works(keys, records[start : start + count])
    return RunningPage(len(records), works)


def held(keys: Keys, *, start: int, count: int, most: int) -> Op[HeldPage]:
    """Return some of the processes that hold jobs, with at most `most` jobs of each.

    They are those that the set of owners names: unlike `Inspector.holdings`, it does not look at
    every key of the server for others.
    """
    names, _ = yield from members(keys.owners)
    identities = sorted(names)
    numbers = yield from held_by(keys, identities, most=0)
    shown = yield from held_by(keys, identities[start : start + count], most=most)
    return HeldPage(len(identities), sum(one.size for one in numbers), shown)


def given_up(keys: Keys) -> Op[list[str]]:
    """Return the processes that are registered and have no lease, by identity. [BEAT-1]"""
    names, _ = yield from members(keys.processes)
    identities = sorted(names)
    alive = yield from ask([command("EXISTS", raw(keys.process(one))) for one in identities])
    return [one for one, exists in zip(identities, alive, strict=True) if not whole(exists)]


def page(keys: Keys, place: str, *, start: int, count: int, rising: bool) -> Op[PlacePage]:
    """Return some entries of a place by their position, in one round trip.

    Args:
        keys: Key names.
        place: `schedule`, `retry`, `dead`, `unreadable` or `queue:<name>`.
        start: Position of the first entry.
        count: Maximum number of entries.
        rising: True to begin with the lowest score, or with the job of a queue that runs next.

    Raises:
        ConfigError: There is no such place.
    """
    check_place(place)
    key = place_key(keys, place)
    last = start + count - 1
    if place.startswith(QUEUE):
        bounds = (-last - 1, -start - 1) if rising else (start, last)
        size, reply = yield from ask([command("LLEN", key), command("LRANGE", key, *bounds)])
        payloads = items(reply)
        entries = [entry(one, place) for one in (payloads[::-1] if rising else payloads)]
        return PlacePage(whole(size), start, entries)
    order = () if rising else ("REV",)
    size, reply = yield from ask(
        [command("ZCARD", key), command("ZRANGE", key, start, last, *order, "WITHSCORES")]
    )
    flat = items(reply)
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return PlacePage(whole(size), start, [entry(one, place, score(at)) for one, at in pairs])


def entry_at(
    keys: Keys, place: SetName, at: float, jid: str, named: str, secret: bytes
) -> Op[Entry | None]:
    """Return the entry of a set with this score, job id and digest; None if it is gone.

    Args:
        keys: Key names.
        place: The set.
        at: Its score.
        jid: Its job id, or "" if it has none.
        named: Its digest, or "" for the only one with this score and id.
        secret: Key of the digests.
    """
    found = yield from fetch(keys, place, at, at, jid or None)
    fitting = [
        one for one in found if (one.jid or "") == jid and named in ("", digest(one, secret))
    ]
    return fitting[0] if len(fitting) == 1 or (fitting and named) else None


def job_near(keys: Keys, queue: str, position: int, named: str, secret: bytes) -> Op[Entry | None]:
    """Return the job of a queue with this digest, if it is near a position.

    Args:
        keys: Key names.
        queue: Name of the queue.
        position: Its position when it was seen: from the head, or negative from the tail.
        named: Its digest.
        secret: Key of the digests.
    """
    key = raw(keys.queue(queue))
    first, last = position - WINDOW, position + WINDOW
    if position >= 0:
        first = max(first, 0)
    else:
        last = min(last, -1)
    (reply,) = yield from ask([command("LRANGE", key, first, last)])
    jobs = (entry(payload, QUEUE + queue) for payload in cast("list[bytes]", items(reply)))
    return next((one for one in jobs if digest(one, secret) == named), None)


def digest(one: Entry, secret: bytes = b"") -> str:
    """Return a digest that names a payload as stored: 40 hex digits.

    Args:
        one: The entry.
        secret: Key of the digests. Needed where a person sees the digest and not all of the
            payload: without it, the hidden part is found by trying values.
    """
    return hmac.new(secret, one.payload, hashlib.sha256).hexdigest()[:40]
