"""Holding jobs so that no crash loses them: the reliable profile. [REL-1] to [REL-6]

A job that was fetched stays in Redis, in the private hash of the process that holds it, until
its outcome is stored. Each step below is one script, so at every instant the job is in at least
one place. Every outcome first takes the private entry away; whoever finds it gone has lost the
job to a recovery and must not touch it again. [REL-2]
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobwire.errors import RedisRefused
from jobwire.graves import Grave
from jobwire.keys import Keys
from jobwire.stats import DAY_TTL, stat_keys
from jobwire.wire import Arg, ErrorReply, Op, Script, command

__all__ = [
    "Fetched",
    "Held",
    "fetch",
    "private_queue",
    "put_back",
    "read_fetched",
    "reclaim",
    "recover",
    "resign",
    "script_bury",
    "script_done",
    "script_fetch",
    "script_retry",
]

REMEMBER_RETURNED = 72 * 3600  # seconds [REL-7]


@dataclass(frozen=True, slots=True)
class Held:
    """One job in the private hash.

    Attributes:
        field: `<sequence>:<queue>`; empty for a worker that holds nothing in Redis.
        queue: Where it came from.
        text: The payload.
        returned: How often it was put back unfinished before. [REL-7]
    """

    field: str
    queue: str
    text: bytes
    returned: int = 0


@dataclass(frozen=True, slots=True)
class Fetched:
    """The answer to a fetch.

    Attributes:
        jobs: In the order in which they should run.
        broken: Queue name to error, for keys that are no list. [FETCH-7]
        lease: False if the process has no live lease, so that nothing was taken. [REL-3]
    """

    jobs: Sequence[Held]
    broken: Mapping[str, str]
    lease: bool = True


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
    taken, errors = reply
    jobs = []
    for field, text, returned in zip(taken[::3], taken[1::3], taken[2::3], strict=True):
        name = field.decode()
        jobs.append(Held(name, private_queue(name), text, int(returned)))
    broken = zip(errors[::2], errors[1::2], strict=True)
    return Fetched(jobs, {name.decode(): error.decode() for name, error in broken})


def script_done(
    keys: Keys, identity: str, fields: Sequence[str], *, failed: bool, day: str
) -> Script:
    """Jobs that are over, `failed` or not, and leave nothing behind. [REL-2] [STAT-1]

    Returns the fields that were no longer held.
    """
    return Script(
        "done",
        [keys.private(identity), *stat_keys(keys, day), keys.returned],
        [DAY_TTL, int(failed), *fields],
    )


def script_retry(
    keys: Keys, identity: str, field: str, text: bytes, *, at: float, day: str
) -> Script:
    """A job that goes to the retry set. Returns 1, or 0 if it was no longer held. [RETRY-9]"""
    return Script(
        "retry",
        [keys.private(identity), keys.retry, *stat_keys(keys, day), keys.returned],
        [DAY_TTL, field, at, text],
    )


def script_bury(
    keys: Keys,
    identity: str,
    field: str,
    text: bytes,
    grave: Grave,
    *,
    day: str,
    key: str | None = None,
    counted: bool = True,
) -> Script:
    """A job that goes to the dead set. Returns 1, or 0 if it was no longer held. [DEAD-1]

    A payload that could not be read was not executed and is not `counted`; it may have a set of
    its own, `key`. [EXEC-3] [EXEC-4]
    """
    return Script(
        "bury",
        [keys.private(identity), key or keys.dead, *stat_keys(keys, day), keys.returned],
        [DAY_TTL, field, text, grave.now, grave.oldest, grave.limit, int(counted)],
    )


def put_back(keys: Keys, identity: str, fields: Iterable[str], *, started: bool) -> Op[int]:
    """Return held jobs to the tail of their queues, to run next. [FETCH-6] [SIG-5]

    `started` ones count as put back unfinished. [REL-7]

    Returns:
        How many were still held.
    """
    queue_keys, moves = _moves(keys, fields)
    if not moves:
        return 0
    count: int = yield Script(
        "put_back",
        [keys.private(identity), keys.returned, *queue_keys],
        [REMEMBER_RETURNED if started else 0, *moves],
    )
    return count


def reclaim(keys: Keys, identity: str, numbers: Collection[range]) -> Op[int]:
    """Return what a process holds under these numbers to its queues; say how many. [REL-8]

    For fetches that got no answer: the server may have carried them out all the same.
    """
    held: Sequence[bytes] = yield command("HKEYS", keys.private(identity))
    fields = [
        field for field in _readable(held) if any(_sequence(field) in each for each in numbers)
    ]
    return (yield from put_back(keys, identity, fields, started=False))


def recover(keys: Keys, *, own: str) -> Op[dict[str, int]]:
    """Return the jobs of processes without a lease to their queues. [REL-4] [REL-5]

    Args:
        keys: Key names.
        own: The identity of the caller, never recovered from.

    Returns:
        Identity of each dead process to the number of jobs that this call put back.
    """
    recovered: dict[str, int] = {}
    owners: Sequence[bytes] = yield command("SMEMBERS", keys.owners)
    # Names that are no UTF-8 are nobody's: every identity and queue is a text.
    for identity in sorted(owner.decode("utf-8", "replace") for owner in owners):
        if identity == own or (yield command("EXISTS", keys.process(identity))):
            continue
        held: Sequence[bytes] = yield command("HKEYS", keys.private(identity))
        queue_keys, moves = _moves(keys, _readable(held))
        count = yield Script(
            "recover",
            [
                keys.private(identity),
                keys.process(identity),
                keys.owners,
                keys.returned,
                *queue_keys,
            ],
            [identity, REMEMBER_RETURNED, *moves],
        )
        if count > 0:
            recovered[identity] = count
    return recovered


def resign(keys: Keys, identity: str) -> Op[int]:
    """Stop being an owner; return how many jobs are still held, for others to recover. [REL-4]

    With jobs left, the lease is given up, so that nobody has to wait for its end.
    """
    held: int = yield command("HLEN", keys.private(identity))
    if held:
        yield command("UNLINK", keys.process(identity))
    else:
        yield command("SREM", keys.owners, identity)
    return held


def _moves(keys: Keys, fields: Iterable[str]) -> tuple[list[str], list[Arg]]:
    """Return queue keys and (field, index of its queue's key), the job fetched last first.

    So the one that was fetched first ends nearest to the tail, and runs first again.
    """
    ordered = sorted(fields, key=_sequence, reverse=True)
    index: dict[str, int] = {}
    moves: list[Arg] = []
    for field in ordered:
        key = keys.queue(private_queue(field))
        moves += (field, index.setdefault(key, len(index) + 1))
    return list(index), moves


def _readable(fields: Iterable[bytes]) -> list[str]:
    """Return the fields that are entries; what somebody else put into the hash stays there."""
    texts = (field.decode("utf-8", "replace") for field in fields)
    return [text for text in texts if text.partition(":")[0].isdecimal()]


def _sequence(field: str) -> int:
    return int(field.partition(":")[0])
