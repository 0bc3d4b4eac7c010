"""Locks of unique jobs, each with the job that has it. [X-UNIQ-3]"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobwire.inspect import processes
from jobwire.inspect.entry import Entry
from jobwire.inspect.reading import ask, items, name, raw, whole
from jobwire.inspect.sets import escape, set_key
from jobwire.inspect.summary import members
from jobwire.inspect.walking import ListWalk, SetWalk, Walk
from jobwire.protocol.keys import Keys
from jobwire.protocol.unique import DIGEST, script_unlock
from jobwire.protocol.wire import Op, command

__all__ = ["Locks", "UniqueLock", "jobs_of", "locks_of", "read", "release"]

BATCH_SIZE = 1000  # keys of one step, and jobs of one page


@dataclass(frozen=True, slots=True)
class UniqueLock:
    """The lock of a unique job.

    Attributes:
        digest: The key of the job: 64 hex digits.
        jid: Id of the job that has the lock.
        expires_in: Seconds until its bound; None if it has none.
        job: That job, if it was found: in a set, in a queue, fetched or running.
    """

    digest: str
    jid: str
    expires_in: float | None
    job: Entry | None = None


@dataclass(frozen=True, slots=True)
class Locks:
    """Some locks, by job id.

    Attributes:
        locks: The locks.
        complete: False if there may be more, because a limit was reached.
    """

    locks: Sequence[UniqueLock]
    complete: bool


def read(keys: Keys, *, limit: int, examine: int) -> Op[Locks]:
    """Return locks with their jobs.

    Args:
        keys: Key names.
        limit: Maximum number of locks.
        examine: Maximum number of keys of the server to examine, and of jobs that wait.
    """
    pattern = escape(keys.unique("")) + "*"
    digests: set[str] = set()
    cursor: Any = b"0"
    for _ in range(0, examine, BATCH_SIZE):
        (reply,) = yield from ask(
            [command("SCAN", cursor, "MATCH", pattern, "COUNT", BATCH_SIZE, "TYPE", "string")]
        )
        cursor, page = items(reply) or (b"0", [])
        found = (name(key).removeprefix(keys.unique("")) for key in page)
        digests.update(digest for digest in found if DIGEST.fullmatch(digest))
        if not whole(cursor) or len(digests) >= limit:
            break
    complete = not whole(cursor) and len(digests) <= limit
    locks = yield from locks_of(keys, sorted(digests)[:limit])
    jobs = yield from jobs_of(keys, {lock.jid for lock in locks}, examine)
    with_jobs = [replace(lock, job=jobs.get(lock.jid)) for lock in locks]
    return Locks(sorted(with_jobs, key=lambda lock: lock.jid), complete)


def locks_of(keys: Keys, digests: Sequence[str]) -> Op[list[UniqueLock]]:
    """Return those locks that exist, without their jobs, in one round trip."""
    names = [raw(keys.unique(digest)) for digest in digests]
    replies = yield from ask([command(word, key) for key in names for word in ("GET", "PTTL")])
    return [
        UniqueLock(digest, name(jid), left / 1000 if type(left) is int and left >= 0 else None)
        for digest, jid, left in zip(digests, replies[::2], replies[1::2], strict=True)
        if isinstance(jid, bytes)
    ]


def release(keys: Keys, lock: UniqueLock) -> Op[bool]:
    """Release a lock; return False if its job does not have it any more."""
    return bool((yield script_unlock(keys, lock.digest, lock.jid)))


def jobs_of(
    keys: Keys, jids: set[str], examine: int, others: Sequence[Walk] = ()
) -> Op[dict[str, Entry]]:
    """Return those jobs that are found, by id, each in the place where it is furthest.

    Args:
        keys: Key names.
        jids: Ids of the jobs.
        examine: Maximum number of jobs that wait to examine.
        others: Further places to search after `retry`, `schedule` and the queues.
    """
    found: dict[str, Entry] = {}
    if not jids:
        return found
    for work in (yield from processes.works(keys)):
        found.setdefault(work.job.jid or "", work.job)
    owners, _ = yield from members(keys.owners)
    for holding in (yield from processes.held_by(keys, owners, most=BATCH_SIZE)):
        for _, job in holding.jobs:
            found.setdefault(job.jid or "", job)
    queues, _ = yield from members(keys.queues)
    for walk in (*_waiting(keys, queues), *others):
        while examine > 0 and not jids <= found.keys() and (page := (yield from walk.next())):
            examine -= len(page)
            for job in page:
                if job.jid in jids:
                    found.setdefault(job.jid, job)
    return found


def _waiting(keys: Keys, queues: Sequence[str]) -> Iterator[Walk]:
    for place in ("retry", "schedule"):
        yield SetWalk(set_key(keys, place), place, rising=True, page=BATCH_SIZE)
    for queue in queues:
        yield ListWalk(keys, queue, page=BATCH_SIZE)
