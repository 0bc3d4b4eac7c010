"""Operations that write jobs to Redis. [PUSH-1] [PUSH-2] [PUSH-8] [BULK-1] to [BULK-7]"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import Any

import msgspec

from jobwire.errors import InvalidJob, MaybeWritten, NoReply, RedisRefused, RedisTrouble
from jobwire.protocol import cancelling, times
from jobwire.protocol.batches import Membership, check_added, script_add
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.times import Generation, When
from jobwire.protocol.unique import Refused, milliseconds
from jobwire.protocol.wire import Arg, Batch, Command, Confirm, ErrorReply, Op, Script, command

__all__ = [
    "bulk_times",
    "detect_generation",
    "push",
    "push_bulk",
    "push_members",
    "replace",
    "slices",
]

JOBS_PER_SLICE = 1_000  # jobs in one round trip [BULK-1]
SCHEDULED_JOBS_PER_SLICE = 100
BYTES_PER_SLICE = 1024 * 1024  # of payloads, unless a single job has more
SHORTEST_SPREAD_S = 5.0  # [BULK-14]
REPLACE_TRIES = 10  # of a job that moves while it is looked for
_NONE: Refused = {}


def push(keys: Keys, jobs: Sequence[ReadyPayload], confirm: Confirm | None = None) -> Op[Refused]:
    """Write jobs in one transaction: all of them or none. [PUSH-2]

    A unique job is left out if another has its lock. [X-UNIQ-4]

    Returns:
        The jobs that were left out.

    Raises:
        RedisUnreachable: No job was written.
        RedisRefused: Only the jobs in `written` were written, because a key has another type,
            which the text then names. [ENV-12] [SRV-1]
        MaybeWritten: No reply came, so all jobs may have been written, or none. Or replicas did
            not confirm the write in time, so a failover may undo it. [PUSH-8] [PUSH-14]
    """
    queues: dict[str, list[bytes]] = {}
    schedule: list[str | float | bytes] = []
    queue, texts = None, []  # of the job before, which most jobs share
    for job in jobs:
        if job.lock is not None and job.lock.at_push:
            return (yield from _push_unique(keys, jobs, confirm))
        if job.at is not None:
            schedule += (job.at, job.text)
            continue
        if job.queue != queue:
            queue = job.queue
            texts = queues.setdefault(queue, [])
        texts.append(job.text)
    commands: list[Command] = []
    if queues:
        commands.append(command("SADD", keys.queues, *queues))
        commands += (command("LPUSH", keys.queue(name), *texts) for name, texts in queues.items())
    if schedule:
        commands.append(command("ZADD", keys.schedule, *schedule))  # [SCHED-1] [SCHED-14]
    try:
        if len(commands) == 1 and confirm is None:
            yield commands[0]
        else:
            yield Batch(commands, atomic=True, confirm=confirm)
    except NoReply as error:
        raise _unsure(error, jobs) from None
    except RedisRefused as error:
        written_keys = {
            sent.args[1]
            for sent, reply in zip(commands, error.replies, strict=False)
            if not isinstance(reply, ErrorReply)
        }
        _name_wrong_keys(error, [sent for sent in commands if sent.args[1] not in written_keys])
        error.written = tuple(
            job.jid
            for job in jobs
            if (keys.queue(job.queue) if job.at is None else keys.schedule) in written_keys
        )
        raise
    return _NONE


def _push_unique(keys: Keys, jobs: Sequence[ReadyPayload], confirm: Confirm | None) -> Op[Refused]:
    """Write jobs, each with its lock, in one script. [X-UNIQ-3] [X-UNIQ-4] [X-UNIQ-5]"""
    step = _script_push(keys, jobs)
    try:
        if confirm is None:
            holders: Sequence[bytes] = yield step
        else:
            (holders,) = yield Batch([step], atomic=True, confirm=confirm)
    except NoReply as error:
        raise _unsure(error, jobs) from None
    return {
        job.jid: holder.decode("utf-8", "replace")
        for job, holder in zip(jobs, holders, strict=True)
        if holder
    }


def _script_push(keys: Keys, jobs: Sequence[ReadyPayload]) -> Script:
    names = [keys.queues]
    words: list[Arg] = []
    for job in jobs:
        lock, at = job.lock, job.at
        names.append(keys.queue(job.queue) if at is None else keys.schedule)
        words += ("" if at is not None else job.queue, "" if at is None else at, job.text)
        if lock is None or not lock.at_push:
            words += ("", "", "")
            continue
        names.append(keys.unique(lock.digest))
        bound = ("PX", lock.seconds) if at is None else ("PXAT", at + lock.seconds)
        words += (job.jid, bound[0], milliseconds(bound[1]))
    return Script("lock", names, words)


def replace(
    keys: Keys, job: ReadyPayload, holder: str, *, now: float, confirm: Confirm | None = None
) -> Op[str]:
    """Write a unique job in the place of the one that has its lock, if that one waits. [X-UNIQ-10]

    The old job goes and the new one comes in one transaction.

    Args:
        keys: Key names.
        job: The new job.
        holder: Id of the job that has the lock.
        now: Epoch seconds.
        confirm: See `push`.

    Returns:
        Id of the job that still has the lock, because it runs; empty if the new job was written.
    """
    replies: list[Any] = []

    def take(key: str, text: bytes) -> Op[bool]:
        steps = [cancelling.script_cancel(keys, key, text, holder, now), _script_push(keys, [job])]
        replies[:] = yield Batch(steps, atomic=True, confirm=confirm)
        return replies[0] == 1 or not replies[1][0]

    for _ in range(REPLACE_TRIES):
        try:
            taken = yield from cancelling.remove(keys, holder, take)
        except NoReply as error:
            raise _unsure(error, [job]) from None
        refused = (
            {job.jid: replies[1][0].decode("utf-8", "replace")}
            if taken
            else (
                yield from _push_unique(keys, [job], confirm)  # it may have ended meanwhile
            )
        )
        left = refused.get(job.jid, "")
        if not left or (left == holder and not taken):
            return left
        holder = left
    return holder


def _unsure(error: NoReply, jobs: Sequence[ReadyPayload]) -> MaybeWritten:
    unsure = MaybeWritten(f"{error}; the job may have been written")
    unsure.unsure = tuple(job.jid for job in jobs)
    return unsure


def _name_wrong_keys(error: RedisRefused, failed: Sequence[Command]) -> None:
    """Add the keys of another type to the text of an error. [SRV-1]"""
    if error.code == "WRONGTYPE":
        error.args = (f"{error}: {', '.join(str(sent.args[1]) for sent in failed)}",)


def push_bulk(
    keys: Keys, jobs: Sequence[ReadyPayload], confirm: Confirm | None = None
) -> Op[Refused]:
    """Write many jobs in slices, in order, one transaction for each slice.

    The first slice that fails is the last one that is sent. [BULK-1] [BULK-5] [BULK-8] [BULK-15]
    [BULK-18]

    Returns:
        The unique jobs that were left out; see `push`.

    Raises:
        RedisTrouble: A slice failed. `written` of the error lists the jobs that were written
            nevertheless, `unsure` those that may have been. [BULK-6] [BULK-17]
    """
    written: list[str] = []
    refused: dict[str, str] = {}
    for part in slices(jobs):
        try:
            refused |= yield from push(keys, part, confirm)
        except RedisTrouble as error:
            error.written = (*written, *error.written)
            raise
        written += [job.jid for job in part]
    return refused


def push_members(
    keys: Keys, member: Membership, jobs: Sequence[ReadyPayload], confirm: Confirm | None = None
) -> Op[None]:
    """Write jobs as members of a batch, in slices, in order. [X-BATCH-2] [X-BATCH-3]

    Raises:
        BatchEnded: The batch takes no members any more; the slices before are written.
        RedisTrouble: See `push_bulk`.
    """
    written: list[str] = []
    for part in slices(jobs):
        step = script_add(keys, member, part)
        try:
            if confirm is None:
                state: bytes = yield step
            else:
                (state,) = yield Batch([step], atomic=True, confirm=confirm)
        except NoReply as error:
            unsure = _unsure(error, part)
            unsure.written = tuple(written)
            raise unsure from None
        except RedisTrouble as error:
            error.written = tuple(written)
            raise
        check_added(member.batch, state)
        written += (job.jid for job in part)


def slices(jobs: Sequence[ReadyPayload]) -> Iterator[Sequence[ReadyPayload]]:
    """Cut jobs into slices for one round trip each, in order. [BULK-1] [BULK-7]

    A slice has a limited number of bytes, because other clients wait while the server reads it. A
    slice with a scheduled job in it has fewer jobs, because adding to a sorted set costs the server
    more than adding to a list.
    """
    start = size = 0
    # Most slices are full and have small jobs: a third of the time of the loop below.
    while (part := jobs[start : start + JOBS_PER_SLICE]) and _is_one_slice(part):
        yield part
        start += JOBS_PER_SLICE
    jobs, start = jobs[start:], 0
    most = JOBS_PER_SLICE
    for end, job in enumerate(jobs):
        if job.at is not None:
            most = SCHEDULED_JOBS_PER_SLICE
        size += len(job.text)
        if end > start and (end - start >= most or size > BYTES_PER_SLICE):
            yield jobs[start:end]
            start, size = end, len(job.text)
            most = JOBS_PER_SLICE if job.at is None else SCHEDULED_JOBS_PER_SLICE
    if start < len(jobs):
        yield jobs[start:]


def _is_one_slice(jobs: Sequence[ReadyPayload]) -> bool:
    size = sum([len(job.text) for job in jobs])
    return size <= BYTES_PER_SLICE and not [True for job in jobs if job.at is not None]


def bulk_times(
    count: int,
    *,
    at: When | Sequence[When] | None,
    spread_interval: float | None,
    now: float,
    draws: Iterable[float],
) -> Iterable[float | None]:
    """Return the epoch second at which each job of a bulk push runs; None for at once.

    Each time is computed when it is read, so that reading a part takes the time of that part.
    [BULK-3] [BULK-4] [BULK-12] [BULK-13]

    Args:
        count: Number of jobs.
        at: One time for all jobs, or one for each job; a timedelta is from now.
        spread_interval: Seconds over which to spread the jobs, at least 5.
        now: Epoch seconds.
        draws: A uniform draw in [0, 1) for each job, used for spreading.

    Raises:
        InvalidJob: The times are invalid, or do not match the number of jobs. An invalid time in a
            list raises when it is read.
    """
    if spread_interval is not None:
        if at is not None:
            raise InvalidJob("BULK-4", "spread_interval", "cannot be combined with at")
        is_number = type(spread_interval) in (int, float)
        if not (is_number and 0 < spread_interval < times.MILLISECONDS_FROM):
            raise InvalidJob(
                "BULK-4", "spread_interval", f"{spread_interval!r} is not a positive number"
            )
        width = max(float(spread_interval), SHORTEST_SPREAD_S)
        return (now + draw * width for draw in draws)
    if at is None:
        return repeat(None, count)
    if not isinstance(at, Sequence):
        return repeat(_bulk_time(at, now, "at"), count)
    if len(at) != count:
        raise InvalidJob(
            "BULK-3", "at", f"has {len(at)} times for {count} jobs; give one, or one for each job"
        )
    return (_bulk_time(job_at, now, f"at[{index}]") for index, job_at in enumerate(at))


def _bulk_time(when: When, now: float, field: str) -> float:
    return times.epoch(times.absolute(when, now=now, field=field), field=field)


def detect_generation(keys: Keys, read: set[bytes] | None = None) -> Op[Generation]:
    """Return the generation to write, as the registered processes require. [GEN-5] [GEN-10]

    Args:
        keys: Key names.
        read: Processes whose `info` was read before and does not require generation 7. It never
            changes, so they are not read again: in a fleet where each process asks, each would read
            all others. Brought up to date.
    """
    read = set() if read is None else read
    identities: set[bytes] = set((yield command("SMEMBERS", keys.processes)))
    read &= identities
    unread = sorted(identities - read)
    if not unread:
        return 8
    infos: list[Any] = yield Batch(
        # A member that is not UTF-8 has no hash, so it does not count.
        [
            command("HGET", keys.process(identity.decode("utf-8", "replace")), "info")
            for identity in unread
        ]
    )
    generation: Generation = 8
    for identity, info in zip(unread, map(_object, infos), strict=True):
        if info is not None and times.detect([info]) == 8:
            read.add(identity)
        elif info is not None:
            generation = 7
    return generation


def _object(text: object) -> dict[str, Any] | None:
    """Return the object of a text; None for a missing or damaged one, which does not count."""
    try:
        info = msgspec.json.decode(text) if isinstance(text, bytes) else None
    except msgspec.DecodeError:
        return None
    return info if isinstance(info, dict) else None
