"""The places of a job, and the facts about queues and processes that decide when it runs.

It reads only. A job moves while it is looked for, so the places are read in the order in which a
job passes through them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobwire.console.ops import parking
from jobwire.console.ops.selection import SETS, place_size
from jobwire.inspect import batches, limits, locks, progress
from jobwire.inspect import processes as process_reading
from jobwire.inspect.entry import QUEUE, Entry, SetName, entry, may_have, spelled
from jobwire.inspect.limits import JobLimit
from jobwire.inspect.locks import UniqueLock
from jobwire.inspect.processes import ProcessInfo, private_owners
from jobwire.inspect.progress import IterationState
from jobwire.inspect.reading import ask, items, name, raw, score, text, whole
from jobwire.inspect.sets import find_in_set, set_key
from jobwire.inspect.summary import members
from jobwire.protocol.batches import BatchStatus, batch_of
from jobwire.protocol.keys import Keys
from jobwire.protocol.limits import LIMIT, limit_of
from jobwire.protocol.reliable import private_queue
from jobwire.protocol.unique import UNIQUE, lock_of
from jobwire.protocol.wire import ErrorReply, Op, command

__all__ = ["JobFacts", "JobLocation", "QueueFacts", "collect"]

BATCH_SIZE = 1000  # entries of one round trip
AT_ONCE = 5000  # jobs of one round trip to several queues
MAX_EXAMINED_JOBS = 100_000  # jobs of each queue that are examined


@dataclass(frozen=True, slots=True)
class JobLocation:
    """One place of a job.

    Attributes:
        place: `queue:<name>`, the name of a set, `held` (in the private hash of a process) or
            `running` (in the work records of a process).
        job: The entry there.
        ahead: Of a queue, the number of jobs that run before it.
        identity: Of a held or running job, the process.
        lease: Seconds until the lease of that process ends; None if it has none, so that other
            processes recover its jobs.
        queue: The queue that the job is in, came from, or goes to; "" if that is not known.
        run_at: Of a running job, the time of its start in epoch seconds, or None.
        thread: Of a running job, the name of its thread.
    """

    place: str
    job: Entry
    ahead: int | None = None
    identity: str = ""
    lease: float | None = None
    queue: str = ""
    run_at: float | None = None
    thread: str = ""


@dataclass(frozen=True, slots=True)
class QueueFacts:
    """One queue.

    Attributes:
        size: Number of jobs.
        paused: True if jobwire's workers do not fetch from it.
        registered: True if its name is in the set `queues`.
        problem: The problem with its key, or "".
    """

    size: int
    paused: bool
    registered: bool
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """The facts about one job.

    Attributes:
        jid: The job id.
        now: Epoch seconds.
        places: Its places.
        queues: The queues of these places, and all queues of the processes that serve them.
        processes: All registered processes.
        leases: Identity of a process to the seconds until its lease ends; none without a place.
        iteration: Its state, if it is an iterable job that has begun.
        cut_queues: Names of queues and sets too long to examine as a whole.
        lock: The lock of its key, if it is a unique job and some job has the lock.
        limit: Its limit, if it has one.
        batch: Its batch, if it is a member or a callback of one that exists.
        parked: The reason that it is parked; empty if it is not, or if the reason is lost.
    """

    jid: str
    now: float
    places: Sequence[JobLocation]
    queues: Mapping[str, QueueFacts]
    processes: Sequence[ProcessInfo]
    leases: Mapping[str, float]
    iteration: IterationState | None = None
    cut_queues: Sequence[str] = ()
    lock: UniqueLock | None = None
    limit: JobLimit | None = None
    batch: BatchStatus | None = None
    parked: str = ""


def collect(
    keys: Keys,
    jid: str,
    *,
    now: float,
    examine: int = MAX_EXAMINED_JOBS,
    in_sets: int | None = None,
    in_queues: int | None = None,
    known: JobLocation | None = None,
) -> Op[JobFacts]:
    """Look for a job in all places, and return what decides when it runs.

    Args:
        keys: Key names.
        jid: The job id.
        now: Epoch seconds.
        examine: Maximum number of jobs to examine of each queue, those that run next first.
        in_sets: Maximum number of entries to examine of each set; all by default.
        in_queues: Maximum number of jobs to examine in all queues together; each queue gets an
            equal share.
        known: Its place, to look nowhere else.
    """
    registered = yield from process_reading.processes(keys)
    names, _ = yield from members(keys.queues)
    served = {queue for process in registered for queue in process.queues}
    cut: list[str] = []
    places: list[JobLocation] = []
    for search_all_hashes in (False, True):
        cut = []
        if known is not None:
            places = [known]
            break
        places = yield from _in_sets(keys, jid, in_sets, cut)
        places += yield from _parked(keys, jid, in_sets, cut)
        queues = yield from _with_jobs(keys, sorted({*names, *served}))
        share = examine
        if in_queues is not None:
            share = min(examine, max(in_queues // max(len(queues), 1), 1))
        places += yield from _in_queues(keys, queues, jid, share, cut)
        identities = {process.identity for process in registered}
        owners, _ = yield from members(keys.owners)
        identities.update(owners)
        if (
            search_all_hashes and in_sets is None
        ):  # in case the set of owners was deleted; it looks at every key
            identities |= yield from private_owners(keys)
        places += yield from _held(keys, sorted(identities), jid)
        places += yield from _running(keys, jid)
        if places or cut:
            break  # else the job may have moved to a place that had been read
    wanted = {one.queue for one in places if one.queue} | _neighbours(places, registered)
    states = yield from progress.states(keys, [jid] if jid.isprintable() else [])
    facts = yield from _queue_facts(keys, sorted(wanted), {*names})
    described = next(filter(None, (lock_of(one.job.fields.get(UNIQUE)) for one in places)), None)
    held = yield from locks.locks_of(keys, [described.digest] if described else [])
    limited = next(filter(None, (limit_of(one.job.fields.get(LIMIT)) for one in places)), None)
    member = next(filter(None, (batch_of(one.job.fields) for one in places)), None)
    parked = next((one.job for one in places if one.place == "parked"), None)
    deciding = {*_owners(places), *(one.identity for one in registered)} if places else set()
    leases = yield from _leases(keys, deciding)
    return JobFacts(
        jid=jid,
        now=now,
        places=[_with_lease(one, leases) for one in places],
        queues=facts,
        processes=registered,
        leases=leases,
        iteration=next(iter(states), None),
        cut_queues=cut,
        lock=next(iter(held), None),
        limit=(yield from limits.of_job(keys, limited, jid)) if limited else None,
        batch=(yield from batches.of_job(keys, member.batch)) if member else None,
        parked=(yield from parking.reason_of(keys, parked)) if parked else "",
    )


def _in_sets(keys: Keys, jid: str, most: int | None, cut: list[str]) -> Op[list[JobLocation]]:
    places = []
    for place in SETS:
        size = 0 if most is None else (yield from place_size(keys, place))
        if most is not None and size > most:
            page = yield from _examined(keys, place, jid, most)
            places += [JobLocation(place, one, queue=one.queue) for one in page]
            if not page:
                cut.append(place)
            continue
        one = yield from find_in_set(keys, place, jid, page=BATCH_SIZE)
        if one is not None:
            places.append(JobLocation(place, one, queue=one.queue))
    return places


def _parked(keys: Keys, jid: str, most: int | None, cut: list[str]) -> Op[list[JobLocation]]:
    if most is not None:
        (size,) = yield from ask([command("ZCARD", keys.parked)])
        if whole(size) > most:
            cut.append("parked")
            return []
    one = yield from find_in_set(keys, "parked", jid, page=BATCH_SIZE)
    return [JobLocation("parked", one, queue=one.queue)] if one else []


def _examined(keys: Keys, place: SetName, jid: str, most: int) -> Op[list[Entry]]:
    """Return the entries of a set with a job id, among those with the highest scores."""
    found, part = [], spelled(jid)
    for start in range(0, most, BATCH_SIZE):
        step = command(
            "ZRANGE", set_key(keys, place), start, start + BATCH_SIZE - 1, "REV", "WITHSCORES"
        )
        (reply,) = yield from ask([step])
        flat = items(reply)
        for payload, at in zip(flat[::2], flat[1::2], strict=True):
            if may_have(payload, part):
                one = entry(payload, place, score(at))
                found += [one] if one.jid == jid else []
        if found:
            break
    return found


def _with_jobs(keys: Keys, queues: Sequence[str]) -> Op[list[str]]:
    """Return the queues that are not empty, in one round trip."""
    sizes = yield from ask([command("LLEN", raw(keys.queue(queue))) for queue in queues])
    return [queue for queue, size in zip(queues, sizes, strict=True) if whole(size)]


def _in_queues(
    keys: Keys, queues: Sequence[str], jid: str, examine: int, cut: list[str]
) -> Op[list[JobLocation]]:
    """Return the first job of each queue with this id, searched from the tail."""
    places = []
    step = min(BATCH_SIZE, examine)
    together = max(AT_ONCE // step, 1)
    for start in range(0, len(queues), together):
        ahead = 0
        waiting = list(queues[start : start + together])
        while waiting and ahead < examine:
            count = min(step, examine - ahead)
            replies = yield from ask(
                [
                    command("LRANGE", raw(keys.queue(queue)), -ahead - count, -ahead - 1)
                    for queue in waiting
                ]
            )
            following = []
            for queue, reply in zip(waiting, replies, strict=True):
                page: list[bytes] = items(reply)
                found = _find(page, queue, jid, ahead)
                if found is not None:
                    places.append(found)
                elif len(page) == count:
                    following.append(queue)
            waiting, ahead = following, ahead + count
        cut += waiting
    return places


def _find(page: Sequence[bytes], queue: str, jid: str, ahead: int) -> JobLocation | None:
    """Return the job with this id that runs first of a part of a queue."""
    if may_have(b"".join(page), spelled(jid)):
        for position, payload in enumerate(reversed(page), ahead):
            one = entry(payload, QUEUE + queue)
            if one.jid == jid:
                return JobLocation(one.place, one, ahead=position, queue=queue)
    return None


def _held(keys: Keys, identities: Sequence[str], jid: str) -> Op[list[JobLocation]]:
    places, part = [], spelled(jid)
    cursors: dict[str, Any] = dict.fromkeys(identities, b"0")
    while cursors:
        replies = yield from ask(
            [
                command("HSCAN", raw(keys.private(identity)), cursor, "COUNT", BATCH_SIZE)
                for identity, cursor in cursors.items()
            ]
        )
        following: dict[str, Any] = {}
        for identity, reply in zip(cursors, replies, strict=True):
            cursor, flat = items(reply) or (b"0", [])
            if whole(cursor):
                following[identity] = cursor
            if not may_have(b"".join(flat), part):
                continue
            for field, payload in zip(flat[::2], flat[1::2], strict=True):
                one = entry(payload, "private")
                if one.jid == jid:
                    queue = private_queue(name(field))
                    places.append(JobLocation("held", one, identity=identity, queue=queue))
        cursors = following
    return places


def _running(keys: Keys, jid: str) -> Op[list[JobLocation]]:
    records = yield from process_reading.work_records(keys, spelled(jid))
    return [
        JobLocation(
            "running",
            work.job,
            identity=work.identity,
            queue=work.queue,
            run_at=work.run_at,
            thread=work.thread,
        )
        for work in (record.read() for record in records)
        if work.job.jid == jid
    ]


def _neighbours(places: Sequence[JobLocation], registered: Sequence[ProcessInfo]) -> set[str]:
    """Return the queues of processes that serve a queue of the job."""
    own = {one.queue for one in places if one.queue}
    serving = (process.queues for process in registered if own & {*process.queues})
    return {queue for queues in serving for queue in queues}


def _queue_facts(keys: Keys, names: Sequence[str], known: set[str]) -> Op[dict[str, QueueFacts]]:
    replies = yield from ask(
        [
            step
            for queue in names
            for step in (
                command("LLEN", raw(keys.queue(queue))),
                command("SISMEMBER", keys.paused, raw(queue)),
            )
        ]
    )
    facts = {}
    for index, queue in enumerate(names):
        size, paused = replies[2 * index : 2 * index + 2]
        problem = size.message if isinstance(size, ErrorReply) else ""
        facts[queue] = QueueFacts(whole(size), paused == 1, queue in known, text(problem))
    return facts


def _owners(places: Sequence[JobLocation]) -> set[str]:
    return {one.identity for one in places if one.identity}


def _leases(keys: Keys, identities: set[str]) -> Op[dict[str, float]]:
    ordered = sorted(identities)
    replies = yield from ask([command("PTTL", raw(keys.process(one))) for one in ordered])
    # -1: the key has no expiry, which no beat writes. -2: there is no key.
    return {
        identity: max(whole(reply), 0) / 1000
        for identity, reply in zip(ordered, replies, strict=True)
        if whole(reply, -2) != -2
    }


def _with_lease(one: JobLocation, leases: Mapping[str, float]) -> JobLocation:
    if one.identity not in leases:
        return one
    return JobLocation(
        *(one.place, one.job, one.ahead, one.identity, leases[one.identity]),
        *(one.queue, one.run_at, one.thread),
    )
