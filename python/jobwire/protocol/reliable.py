"""Holding jobs so that no crash loses them: the reliable profile. [REL-1] to [REL-12]

A job that was fetched stays in Redis, in the private hash of the process that holds it, until
its outcome is stored. Each step below is one script, so at every instant the job is in at least
one place. Every outcome first takes the private entry away; whoever finds it gone has lost the
job to a recovery and must not touch it again. [REL-2]
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from jobwire.errors import RedisRefused
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.heartbeat import retire
from jobwire.protocol.keys import Keys
from jobwire.protocol.stats import DAY_TTL, stat_keys
from jobwire.protocol.wire import Arg, ErrorReply, Op, Script, command

__all__ = [
    "Fetched",
    "InFlightJob",
    "fetch",
    "private_queue",
    "put_back",
    "read_fetched",
    "reclaim",
    "recover",
    "resign",
    "script_done",
    "script_fetch",
    "script_kill",
    "script_requeue",
    "script_retry",
]

REMEMBER_RETURNED = 72 * 3600  # seconds [REL-7]
MOVES = 500  # entries in one call of a script, so that no other client waits for long
FORGET = 1000  # digests in one call


# Structs, not dataclasses: one is made for each job, and one for each fetch.


class InFlightJob(msgspec.Struct, frozen=True):
    """One job in the private hash.

    Attributes:
        field: `<sequence>:<queue>`; empty for a worker that holds nothing in Redis.
        queue: Where it came from.
        text: The payload.
        returned: How often it went back to its queue unfinished before: put back by a process
            that stopped, or recovered from one that died. [REL-7]
        recovered: How many of these were recoveries. [REL-10]
    """

    field: str
    queue: str
    text: bytes
    returned: int = 0
    recovered: int = 0


class Fetched(msgspec.Struct, frozen=True):
    """The answer to a fetch.

    Attributes:
        jobs: In the order in which they should run.
        broken: Queue name to error, for keys that are no list. [FETCH-7]
        lease: False if the process has no live lease, so that nothing was taken. [REL-3]
        paused: Names of queues that were left alone because somebody paused them. [REL-9]
    """

    jobs: Sequence[InFlightJob]
    broken: Mapping[str, str]
    lease: bool = True
    paused: Collection[str] = ()


def private_queue(field: str) -> str:
    """Return the queue that a private entry came from. [REL-6]"""
    return field.partition(":")[2]


def fetch(
    keys: Keys, identity: str, queues: Sequence[str], *, count: int, sequence: int
) -> Op[Fetched]:
    """Move up to `count` jobs from the queues, first one first, into the private hash. [REL-1]

    The arguments are those of `script_fetch`.
    """
    reply = yield script_fetch(keys, identity, queues, count=count, sequence=sequence)
    return read_fetched(reply)


def script_fetch(
    keys: Keys, identity: str, queues: Sequence[str], *, count: int, sequence: int
) -> Script:
    """A fetch as a step, which may share a batch with outcomes. `read_fetched` takes its reply.

    Args:
        keys: Key names.
        identity: Who takes them.
        queues: Names in the order to look at them.
        count: How many at most.
        sequence: A number such that this and the next `count` were never used by this process.
    """
    return Script(
        "fetch",
        [
            keys.private(identity),
            keys.process(identity),
            keys.owners,
            keys.returned,
            keys.paused,
            *(keys.queue(name) for name in queues),
        ],
        [identity, count, sequence, *queues],
    )


def read_fetched(reply: Any) -> Fetched:
    """Return what the reply to `script_fetch` says.

    Raises:
        RedisRefused: It is an error, as it may stand in the replies to a batch.
    """
    if isinstance(reply, ErrorReply):
        raise RedisRefused(reply.message, reply.replies)
    if reply is None:
        return Fetched((), {}, lease=False)
    taken, errors, paused = reply
    jobs = []
    parts = iter(taken)
    for field, text, returned, recovered in zip(parts, parts, parts, parts, strict=True):
        name = field.decode()
        jobs.append(InFlightJob(name, private_queue(name), text, int(returned), int(recovered)))
    return Fetched(
        jobs,
        {
            name.decode(): error.decode()
            for name, error in zip(errors[::2], errors[1::2], strict=True)
        },
        paused=[name.decode() for name in paused],
    )


def script_done(
    keys: Keys,
    identity: str,
    fields: Sequence[str],
    *,
    failed: bool,
    day: str,
    repeated: bool = False,
) -> Script:
    """Jobs that are over, `failed` or not, and leave nothing behind. [REL-2] [STAT-1]

    `repeated`, here and below: the same call was made before and got no reply, so that finding
    the job gone says nothing. [REL-12]

    Returns the fields that were no longer held.
    """
    return Script(
        "done",
        [keys.private(identity), *_counted(keys, day)],
        [DAY_TTL, int(failed), int(repeated), *fields],
    )


def script_retry(
    keys: Keys,
    identity: str,
    retries: Iterable[tuple[str, float, bytes]],
    *,
    day: str,
    repeated: bool = False,
) -> Script:
    """Jobs that go to the retry set. [RETRY-9]

    Args:
        keys: Key names.
        identity: Who holds them.
        retries: Field in the private hash, epoch second of the next try, payload to store.
        day: Of the counters.
        repeated: See `script_done`.

    Returns the fields that were no longer held.
    """
    moves: list[Arg] = [DAY_TTL, int(repeated)]
    for retry in retries:
        moves += retry
    return Script("retry", [keys.private(identity), keys.retry, *_counted(keys, day)], moves)


def script_kill(
    keys: Keys,
    identity: str,
    field: str,
    text: bytes,
    dead_limits: DeadSetLimits,
    *,
    day: str,
    key: str | None = None,
    counted: bool = True,
    repeated: bool = False,
) -> Script:
    """A job that goes to the dead set. Returns 1, or 0 if it was no longer held. [DEAD-1]

    A payload that could not be read was not executed and is not `counted`; it may have a set of
    its own, `key`. [EXEC-3] [EXEC-4]
    """
    return Script(
        "kill",
        [keys.private(identity), key or keys.dead, *_counted(keys, day)],
        [
            DAY_TTL,
            field,
            text,
            dead_limits.now,
            dead_limits.oldest,
            dead_limits.limit,
            int(counted),
            int(repeated),
        ],
    )


def script_requeue(
    keys: Keys,
    identity: str,
    field: str,
    text: bytes,
    queue: str,
    *,
    day: str,
    executed: bool = False,
    failed: bool = False,
    repeated: bool = False,
) -> Script:
    """A job that gives way and goes to the head of a queue, like a push. [ITER-4]

    It is no return of an unfinished job [REL-7]; `executed` and `failed` say what it counts as.
    Returns 1, or 0 if it was no longer held.
    """
    return Script(
        "requeue",
        [keys.private(identity), keys.queue(queue), *_counted(keys, day), keys.queues],
        [DAY_TTL, field, queue, text, int(executed), int(failed), int(repeated)],
    )


def put_back(
    keys: Keys, identity: str, fields: Iterable[str], *, started: bool, now: float = math.inf
) -> Op[int]:
    """Return held jobs to the tail of their queues, to run next. [FETCH-6] [SIG-5]

    `started` ones count as put back unfinished, which is remembered for 72 h from epoch second
    `now`, or by default until 72 h went by without any such event. [REL-7]

    Returns:
        How many were still held.
    """
    total = 0
    for queue_keys, moves in _moves(keys, fields):
        total += yield Script(
            "put_back",
            [keys.private(identity), keys.returned, keys.returned_at, keys.lost, *queue_keys],
            [REMEMBER_RETURNED if started else 0, now, *moves],
        )
    return total


def reclaim(keys: Keys, identity: str, numbers: Collection[range]) -> Op[int]:
    """Return what a process holds under these numbers to its queues; say how many. [REL-8]

    For fetches that got no answer: the server may have carried them out all the same.
    """
    held: Sequence[bytes] = yield command("HKEYS", keys.private(identity))
    fields = [
        field for field in _readable(held) if any(_sequence(field) in each for each in numbers)
    ]
    return (yield from put_back(keys, identity, fields, started=False))


def recover(keys: Keys, *, own: str, now: float, ended: Collection[str] = ()) -> Op[dict[str, int]]:
    """Return the jobs of processes without a lease to their queues. [REL-4] [REL-5]

    Args:
        keys: Key names.
        own: The identity of the caller, never recovered from.
        now: Epoch seconds.
        ended: Identities whose process is known for certain to have ended; the rest of their
            lease does not count. [REL-11]

    Returns:
        Identity of each dead process to the number of jobs that this call put back.
    """
    for identity in sorted(set(ended) - {own}):
        yield from retire(keys, identity)
        yield command("UNLINK", keys.process(identity))
    recovered: dict[str, int] = {}
    owners: Sequence[bytes] = yield command("SMEMBERS", keys.owners)
    # Names that are no UTF-8 are nobody's: every identity and queue is a text.
    for identity in sorted(owner.decode("utf-8", "replace") for owner in owners):
        if identity == own or (yield command("EXISTS", keys.process(identity))):
            continue
        if count := (yield from _recover_from(keys, identity, now)):
            recovered[identity] = count
    yield from _forget(keys, now - REMEMBER_RETURNED)
    return recovered


def resign(keys: Keys, identity: str, *, now: float) -> Op[int]:
    """Stop being an owner; return how many jobs are still held, for others to recover. [REL-4]

    What is held goes back first: a process that stops in good order is no crash. [REL-10]
    With jobs left, the lease is given up, so that nobody has to wait for its end.
    """
    fields: Sequence[bytes] = yield command("HKEYS", keys.private(identity))
    yield from put_back(keys, identity, _readable(fields), started=True, now=now)
    held: int = yield command("HLEN", keys.private(identity))
    if held:
        yield command("UNLINK", keys.process(identity))
    else:
        yield command("SREM", keys.owners, identity)
    return held


def _recover_from(keys: Keys, identity: str, now: float) -> Op[int]:
    """Return the jobs of one process, a limited number in each step."""
    held: Sequence[bytes] = yield command("HKEYS", keys.private(identity))
    total = 0
    # With nothing to move, one call is still needed to forget the owner.
    for queue_keys, moves in _moves(keys, _readable(held)) or [((), ())]:
        count = yield Script(
            "recover",
            [
                keys.private(identity),
                keys.process(identity),
                keys.owners,
                keys.returned,
                keys.returned_at,
                keys.recovered,
                *queue_keys,
            ],
            [identity, REMEMBER_RETURNED, now, *moves],
        )
        if count < 0:
            break
        total += count
    return total


def _forget(keys: Keys, oldest: float) -> Op[None]:
    """Forget jobs that were returned last at that time or before. [REL-7]"""
    step = Script("forget", [keys.returned, keys.returned_at], [oldest, FORGET])
    while (yield step) == FORGET:
        pass


def _counted(keys: Keys, day: str) -> list[str]:
    """Return what every outcome counts in, in the order of the scripts."""
    return [*stat_keys(keys, day), keys.returned, keys.returned_at, keys.lost]


def _moves(keys: Keys, fields: Iterable[str]) -> list[tuple[Sequence[str], Sequence[Arg]]]:
    """Return calls: queue keys and (field, index of its queue's key), what was fetched last first.

    So the one that was fetched first ends nearest to the tail, and runs first again.
    """
    ordered = sorted(fields, key=_sequence, reverse=True)
    calls: list[tuple[Sequence[str], Sequence[Arg]]] = []
    for start in range(0, len(ordered), MOVES):
        index: dict[str, int] = {}
        moves: list[Arg] = []
        for field in ordered[start : start + MOVES]:
            key = keys.queue(private_queue(field))
            moves += (field, index.setdefault(key, len(index) + 1))
        calls.append((list(index), moves))
    return calls


def _readable(fields: Iterable[bytes]) -> list[str]:
    """Return the fields that are entries; what somebody else put into the hash stays there."""
    texts = (field.decode("utf-8", "replace") for field in fields)
    return [text for text in texts if text.partition(":")[0].isdecimal()]


def _sequence(field: str) -> int:
    return int(field.partition(":")[0])
