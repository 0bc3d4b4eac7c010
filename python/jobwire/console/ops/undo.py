"""Deletions that can be undone for 24 hours. [KEY-5]

The transaction that removes entries also keeps their exact bytes, with their scores or their places
in the queue. So at every instant a deleted job is in its place or in a record, and a crash between
two commands loses nothing.

A set: the server intersects the members to delete with the set, as it is in that instant. The
result has the members that are removed, with their present scores, and no others. A queue has no
such command: the record gets all jobs to delete, and the next message takes out those that a worker
fetched in between. If the program ends before that message, their return is `unsure`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, cast

from jobwire.console.ops.journal import storable
from jobwire.errors import ConfigError, RedisRefused
from jobwire.inspect.entry import QUEUE, Entry, SetName
from jobwire.inspect.reading import ask, items, name, number, raw, text, whole
from jobwire.inspect.sets import set_key
from jobwire.protocol.keys import Keys
from jobwire.protocol.removal import removing
from jobwire.protocol.wire import Arg, Batch, Command, Op, command

__all__ = [
    "KEPT_S",
    "Deleted",
    "Removal",
    "UndoRecord",
    "Undone",
    "clear_queue",
    "clear_set",
    "drop",
    "put_back",
    "record",
    "remove_from_queue",
    "remove_from_set",
    "remove_job",
    "undoable",
]

KEPT_S = 24 * 3600
LOCK_S = 60
BATCH_SIZE = 500  # entries of one step

Form = Literal["set", "jobs", "whole"]


@dataclass(frozen=True, slots=True)
class Deleted:
    """A deletion.

    Attributes:
        count: Number of deleted entries.
        undo: Id with which the deletion can be undone for 24 hours; "" if nothing was deleted.
    """

    count: int
    undo: str

    def __bool__(self) -> bool:
        """True if something was deleted."""
        return self.count > 0


@dataclass(frozen=True, slots=True)
class UndoRecord:
    """A deletion that can still be undone.

    Attributes:
        id: Its id.
        place: `queue:<name>` or the name of a set.
        person: The person that deleted.
        at: Time of the deletion in epoch seconds, or None.
        expires_in: Seconds until the record is gone.
        size: Number of deleted entries that the record holds.
        whole: True if the whole place was deleted.
        parts: Number of its parts.
        settled: Number of parts of a queue whose jobs are known to have been deleted.
    """

    id: str
    place: str
    person: str
    at: float | None
    expires_in: float
    size: int
    whole: bool
    parts: int
    settled: int


@dataclass(frozen=True, slots=True)
class Undone:
    """A deletion that was undone.

    Attributes:
        id: Id of the deletion.
        place: `queue:<name>` or the name of a set.
        restored: Number of entries that are back in their place.
        unsure: Number of these jobs that a worker may have fetched at the instant of the deletion.
            They may run twice. It is 0 unless the deleting program was killed.
        kept: Number of entries that were not put back, because the same bytes are in the set again.
    """

    id: str
    place: str
    restored: int
    unsure: int = 0
    kept: int = 0


class Removal(NamedTuple):
    """A job to delete from a queue, and the job that runs before it, if the page has one."""

    payload: bytes
    before: bytes | None


# -- deletion


def remove_from_set(
    keys: Keys,
    key: str,
    place: str,
    record_id: str,
    part: int,
    members: Sequence[bytes],
    *,
    person: str,
    now: float,
) -> Op[int]:
    """Delete members of a sorted set and keep them with their scores; return how many existed.

    Args:
        keys: Key names.
        key: Key of the set.
        place: Name of the set.
        record_id: Id of the deletion.
        part: Number of this step in the deletion, from 0.
        members: Exact bytes, not empty.
        person: The person.
        now: Epoch seconds.

    Raises:
        RedisRefused: The key is of another type; nothing was deleted.
    """
    picked = keys.undo_part(record_id, -1)
    stored = keys.undo_part(record_id, part)
    pairs: list[Arg] = [word for member in members for word in (0, member)]
    removals = removing(keys, key, members, now=now)
    replies = yield Batch(
        [
            command("ZADD", picked, *pairs),
            # The scores of the set, because those of `picked` are all 0.
            command("ZINTERSTORE", stored, 2, picked, key, "WEIGHTS", 0, 1),
            *removals,
            command("UNLINK", picked),
            command("EXPIRE", stored, KEPT_S),
            *_kept(keys, record_id, "set", place, part, person=person, now=now),
        ],
        atomic=True,
    )
    return sum(map(whole, replies[2 : 2 + len(removals)]))


def remove_from_queue(
    keys: Keys,
    queue: str,
    record_id: str,
    part: int,
    jobs: Sequence[Removal],
    *,
    person: str,
    now: float,
) -> Op[int]:
    """Delete jobs of a queue and keep them with their places; return how many existed.

    Args:
        keys: Key names.
        queue: Name of the queue.
        record_id: Id of the deletion.
        part: Number of this step in the deletion, from 0.
        jobs: The jobs from the head of the queue to its tail, not empty.
        person: The person.
        now: Epoch seconds.

    Raises:
        RedisRefused: The key is of another type; nothing was deleted.
    """
    key = raw(keys.queue(queue))
    stored = keys.undo_part(record_id, part)
    fields: list[Arg] = []
    for index, job in enumerate(jobs):
        fields += (index, job.payload)
        is_next = index + 1 < len(jobs) and jobs[index + 1].payload == job.before
        if job.before is not None and not is_next:
            fields += (f"{index}:before", job.before)
    replies = yield Batch(
        [
            command("HSET", stored, *fields),
            command("EXPIRE", stored, KEPT_S),
            *_kept(keys, record_id, "jobs", QUEUE + queue, part, person=person, now=now),
            *removing(keys, key, [job.payload for job in jobs], now=now, of_list=True),
        ],
        atomic=True,
    )
    counts = [whole(reply) for reply in replies[-len(jobs) :]]
    missed = [index for index, count in enumerate(counts) if not count]
    settle: list[Command] = [command("HSET", keys.undo(record_id), "settled", part + 1)]
    if missed:
        gone = [word for index in missed for word in (index, f"{index}:before")]
        settle.append(command("HDEL", stored, *gone))
    yield Batch(settle, atomic=True)
    return sum(counts)


def remove_job(keys: Keys, job: Entry, record_id: str, *, person: str, now: float) -> Op[int]:
    """Delete one job of a queue and keep it with its place; return 1 if it existed. O(n)."""
    key = raw(keys.queue(job.queue))
    position = yield command("LPOS", key, job.payload)
    if position is None:
        return 0
    before = yield command("LINDEX", key, position + 1)
    removal = Removal(job.payload, before)
    return (
        yield from remove_from_queue(
            keys, job.queue, record_id, 0, [removal], person=person, now=now
        )
    )


def clear_set(
    keys: Keys, place: str, key: str, record_id: str, *, person: str, now: float
) -> Op[int]:
    """Delete a whole set in one step and keep it; return the number of its entries.

    Raises:
        RedisRefused: The key is not a sorted set.
    """
    if not (yield from _exists(key, "zset")):
        return 0
    replies = yield Batch(
        [command("ZCARD", key), *_moved(keys, key, place, record_id, person=person, now=now)],
        atomic=True,
    )
    return whole(replies[0])


def clear_queue(keys: Keys, queue: str, record_id: str, *, person: str, now: float) -> Op[int]:
    """Delete a queue and its registration in one step and keep both; return the number of its jobs.

    Raises:
        RedisRefused: The key is not a list.
    """
    key = raw(keys.queue(queue))
    forget = command("SREM", keys.queues, raw(queue))
    if not (yield from _exists(key, "list")):
        yield forget
        return 0
    replies = yield Batch(
        [
            command("LLEN", key),
            *_moved(keys, key, QUEUE + queue, record_id, person=person, now=now),
            forget,
        ],
        atomic=True,
    )
    return whole(replies[0])


# -- undo


def record(keys: Keys, record_id: str) -> Op[UndoRecord | None]:
    """Return the record of a deletion, or None if there is none or it has expired."""
    flat, ttl = yield from ask(
        [command("HGETALL", raw(keys.undo(record_id))), command("PTTL", raw(keys.undo(record_id)))]
    )
    words = items(flat)
    fields: dict[bytes, bytes] = dict(zip(words[::2], words[1::2], strict=True))
    if b"place" not in fields:
        return None
    form, parts = fields.get(b"form", b""), whole(fields.get(b"parts"))
    place = name(fields[b"place"])
    stored = [raw(keys.undo_part(record_id, part)) for part in range(parts)]
    if form == b"jobs":  # other fields name the job in front
        names = yield from ask([command("HKEYS", key) for key in stored])
        size = sum(field.isdigit() for reply in names for field in items(reply))
    else:
        counts = "LLEN" if place.startswith(QUEUE) else "ZCARD"
        size = sum(map(whole, (yield from ask([command(counts, key) for key in stored]))))
    return UndoRecord(
        record_id,
        place,
        text(fields.get(b"who")),
        number(fields.get(b"at")),
        max(whole(ttl), 0) / 1000,
        size,
        form == b"whole",
        parts,
        whole(fields.get(b"settled")),
    )


def undoable(keys: Keys, record_ids: Sequence[str]) -> Op[set[str]]:
    """Return those of some ids whose deletion can be undone."""
    ids = list(dict.fromkeys(record_ids))
    if not ids:
        return set()
    places = yield from ask([command("HGET", raw(keys.undo(one)), "place") for one in ids])
    return {one for one, place in zip(ids, places, strict=True) if isinstance(place, bytes)}


def drop(keys: Keys, record_id: str) -> Op[None]:
    """Remove the record of a deletion that deleted nothing."""
    yield command("UNLINK", keys.undo(record_id))


def put_back(
    keys: Keys, record_id: str, *, progress: Callable[[int, int], None] | None = None
) -> Op[Undone]:
    """Put deleted entries back where they were: the same bytes, scores and order.

    A job of a queue returns behind the job that ran before it. If that job has run, it runs next.
    One program undoes a deletion at a time. If that program is killed, another one may go on after
    a minute. For a queue, up to 500 jobs that the first had put back may then be there twice.

    Args:
        keys: Key names.
        record_id: Id of the deletion.
        progress: Called after each step with the number of entries that are back, and of all.

    Raises:
        ConfigError: There is no such deletion, it was undone, or its 24 hours are over; or another
            program undoes it now.
        RedisRefused: The key of the place is of another type; the entries stay in the record.
    """
    kept = yield from record(keys, record_id)
    if kept is None:
        raise ConfigError(
            f"there is no deletion {text(record_id)!r} to undo: it was undone, or its 24 hours are "
            "over; 'jobwire journal' shows the ids"
        )
    lock = raw(keys.undo_lock(record_id))
    if (yield command("SET", lock, "1", "NX", "EX", LOCK_S)) is None:
        raise ConfigError(f"another program undoes the deletion {text(record_id)!r} at this moment")
    try:
        restoring = _Restoring(keys, kept, progress)
        if kept.whole:
            yield from restoring.whole()
        elif kept.place.startswith(QUEUE):
            yield from restoring.jobs()
        else:
            yield from restoring.members()
    except RedisRefused:
        yield command("UNLINK", lock)
        raise
    yield command("UNLINK", raw(keys.undo(record_id)), lock)
    return Undone(record_id, kept.place, restoring.restored, restoring.unsure, restoring.kept)


class _Restoring:
    """The state of one undo."""

    def __init__(
        self, keys: Keys, kept: UndoRecord, progress: Callable[[int, int], None] | None
    ) -> None:
        self._keys = keys
        self._record = kept
        self._progress = progress
        self._queue = kept.place.removeprefix(QUEUE)
        self._is_queue = kept.place.startswith(QUEUE)
        self._lock = raw(keys.undo_lock(kept.id))
        if self._is_queue:
            self._key: Arg = raw(keys.queue(self._queue))
        else:
            self._key = set_key(keys, cast("SetName", kept.place))
        self._oldest: bytes | None = None  # the last job that went to the tail
        self.restored = self.unsure = self.kept = 0

    def _part(self, part: int) -> bytes:
        return raw(self._keys.undo_part(self._record.id, part))

    def _report(self, count: int) -> Command:
        """Count entries; return the step that keeps the lock."""
        self.restored += count
        if self._progress:
            self._progress(self.restored, self._record.size)
        return command("EXPIRE", self._lock, LOCK_S)

    def whole(self) -> Op[None]:
        """Put a whole place back, in one step if it is empty now."""
        part = self._part(0)
        if not (yield from _exists(part, "list" if self._is_queue else "zset")):
            return
        registered = [command("SADD", self._keys.queues, raw(self._queue))] * self._is_queue
        # A key keeps its expiry when it is renamed.
        steps = [command("RENAMENX", part, self._key), *registered]
        (renamed, *_) = yield Batch([*steps, command("PERSIST", self._key)], atomic=True)
        if renamed:
            yield self._report(self._record.size)
        elif self._is_queue:
            yield from self._oldest_jobs(part)
        else:
            yield from self._set_part(part)

    def _oldest_jobs(self, part: bytes) -> Op[None]:
        """Move the jobs of a whole queue to the tail, because they are older than all others."""
        yield from _exists(self._key, "list")
        while True:
            move = command("LMOVE", part, self._key, "LEFT", "RIGHT")
            replies = yield Batch([move] * BATCH_SIZE, atomic=True)
            count = sum(reply is not None for reply in replies)
            yield self._report(count)
            if count < BATCH_SIZE:
                return

    def members(self) -> Op[None]:
        """Put members of a set back, part by part."""
        for part in range(self._record.parts):
            yield from self._set_part(self._part(part))

    def _set_part(self, part: bytes) -> Op[None]:
        yield from _exists(self._key, "zset")
        while True:
            flat = yield command("ZRANGE", part, 0, BATCH_SIZE - 1, "WITHSCORES")
            members, scores = flat[::2], flat[1::2]
            if not members:
                return
            pairs: list[Arg] = [word for pair in zip(scores, members, strict=True) for word in pair]
            added, _ = yield Batch(
                [command("ZADD", self._key, "NX", *pairs), command("ZREM", part, *members)],
                atomic=True,
            )
            self.kept += len(members) - whole(added)
            yield self._report(whole(added))

    def jobs(self) -> Op[None]:
        """Put jobs of a queue back, the one that runs first first."""
        yield from _exists(self._key, "list")
        behind: bytes | None = None  # the job that was put back last
        for part in reversed(range(self._record.parts)):
            stored = self._part(part)
            flat = yield command("HGETALL", stored)
            fields: dict[bytes, bytes] = dict(zip(flat[::2], flat[1::2], strict=True))
            numbers = sorted((int(field) for field in fields if field.isdigit()), reverse=True)
            for start in range(0, len(numbers), BATCH_SIZE):
                page = numbers[start : start + BATCH_SIZE]
                behind = yield from self._job_page(stored, fields, page, behind)
                if part >= self._record.settled:
                    self.unsure += len(page)
        register = command("SADD", self._keys.queues, raw(self._queue))
        if self.restored:
            yield register

    def _job_page(
        self, stored: bytes, fields: dict[bytes, bytes], page: Sequence[int], behind: bytes | None
    ) -> Op[bytes | None]:
        """Put a page of jobs back, the one that runs first first; return the last of them."""
        inserts = []
        payloads = [fields[b"%d" % index] for index in page]
        for index, payload in zip(page, payloads, strict=True):
            pivot = fields.get(b"%d:before" % index, behind)
            inserts.append((pivot, payload))
            behind = payload
        replies = yield from self._insert(inserts)
        # The job in front has run, and so have all jobs before it: these are the oldest now.
        oldest = [job for job, there in zip(payloads, replies, strict=True) if not there]
        gone = [word for index in page for word in (b"%d" % index, b"%d:before" % index)]
        settle = [command("HDEL", stored, *gone), self._report(len(page))]
        if oldest:
            chain = [*zip([self._oldest, *oldest], oldest, strict=False)]
            (found, *_) = yield from self._insert(chain)
            if not found:  # of the jobs that went to the tail before, all have run
                settle = [
                    command("RPUSH", self._key, oldest[0]),
                    *(
                        _before(self._key, pivot, job)
                        for pivot, job in chain[1:]
                        if pivot is not None
                    ),
                    *settle,
                ]
            self._oldest = oldest[-1]
        yield Batch(settle, atomic=True)
        return behind

    def _insert(self, pairs: Sequence[tuple[bytes | None, bytes]]) -> Op[list[bool]]:
        """Insert jobs, each behind the job that runs before it, unless that one is gone."""
        steps = [_before(self._key, pivot, job) for pivot, job in pairs if pivot is not None]
        counts = iter((yield Batch(steps, atomic=True)) if steps else ())
        return [pivot is not None and whole(next(counts)) > 0 for pivot, _ in pairs]


# -- helpers


def _before(key: Arg, pivot: bytes, job: bytes) -> Command:
    # The side of the head is before the pivot; the pivot runs first.
    return command("LINSERT", key, "BEFORE", pivot, job)


def _kept(
    keys: Keys, record_id: str, form: Form, place: str, part: int, *, person: str, now: float
) -> list[Command]:
    """Return the steps that write the record of a deletion."""
    key = keys.undo(record_id)
    fields: tuple[Arg, ...] = (
        *("form", form, "place", raw(place), "who", storable(person)),
        *("at", repr(now), "parts", part + 1),
    )
    return [command("HSET", key, *fields), command("EXPIRE", key, KEPT_S)]


def _moved(
    keys: Keys, key: Arg, place: str, record_id: str, *, person: str, now: float
) -> list[Command]:
    """Return the steps that move a whole key into a record."""
    stored = keys.undo_part(record_id, 0)
    return [
        command("RENAME", key, stored),
        command("EXPIRE", stored, KEPT_S),
        *_kept(keys, record_id, "whole", place, 0, person=person, now=now),
    ]


def _exists(key: Arg, kind: str) -> Op[bool]:
    """Return True if a key exists.

    Raises:
        RedisRefused: It is of another type.
    """
    stored = text((yield command("TYPE", key)))
    if stored not in (kind, "none"):
        raise RedisRefused(f"WRONGTYPE {text(key)} is a {stored}, not a {kind}")
    return stored == kind
