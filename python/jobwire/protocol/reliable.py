"""The reliable profile: jobs are held in Redis, so that no crash loses them. [REL-1] to [REL-27]

A fetched job stays in Redis, in the private hash of the process that holds it, until its outcome
is stored. Each step below is one script, so a job is always in at least one place. [GUAR-1]
Every outcome first removes the private entry. A process that finds the entry gone has lost the job
to a recovery and must not touch the job again. [REL-15] [GUAR-2]
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from jobwire.errors import RedisRefused
from jobwire.protocol.batches import batch_keys
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.heartbeat import retire
from jobwire.protocol.keys import Keys
from jobwire.protocol.outcome import Outcome
from jobwire.protocol.results import ResultToStore
from jobwire.protocol.stats import DAY_TTL_S, stat_keys
from jobwire.protocol.wire import Arg, Batch, Command, ErrorReply, Op, Script, command

__all__ = [
    "Fetched",
    "InFlightJob",
    "fetch",
    "held_fields",
    "name_owners",
    "private_queue",
    "put_back",
    "read_fetched",
    "reclaim",
    "recover",
    "resign",
    "scan_private",
    "script_done",
    "script_fetch",
    "script_finish",
    "sequence_number",
    "set_result",
]

REMEMBER_RETURNED_S = 72 * 3600  # [REL-7]
MOVES_PER_CALL = 500  # entries in one call of a script, so that other clients do not wait long
DIGESTS_PER_CALL = 1000
LEASES_PER_BATCH = 1000
SCANS_PER_CALL = 10
KEYS_PER_SCAN = 1000

_ENTRY = re.compile("[0-9]+:")  # the beginning of a private field [REL-13]


# Structs are quicker to make than dataclasses; every job and every fetch needs one.


class InFlightJob(msgspec.Struct, frozen=True):
    """One job in the private hash.

    Attributes:
        field: `<sequence>:<queue>`; empty for a worker without a private hash.
        queue: Name of the queue that it came from.
        text: The payload.
        returned: Number of times that it went back to its queue unfinished: put back by a process
            that stopped, or recovered from one that died. [REL-7]
        recovered: Number of recoveries among these. [REL-10]
    """

    field: str
    queue: str
    text: bytes
    returned: int = 0
    recovered: int = 0


class Fetched(msgspec.Struct, frozen=True):
    """The result of a fetch.

    Attributes:
        jobs: The jobs, in the order in which they should run.
        broken: Queue name to error, for keys that are not a list. [FETCH-7]
        lease: False if the process has no live lease; then it took no jobs. [REL-16]
        paused: Names of queues that were skipped because they are paused. [REL-9]
    """

    jobs: Sequence[InFlightJob]
    broken: Mapping[str, str]
    lease: bool = True
    paused: Collection[str] = ()


def private_queue(field: str) -> str:
    """Return the queue that a private entry came from. [REL-13]"""
    return field.partition(":")[2]


def sequence_number(field: str) -> int:
    """Return the number of a private entry, which no other entry of its process has. [REL-19]"""
    return int(field.partition(":")[0])


def fetch(
    keys: Keys, identity: str, queues: Sequence[str], *, count: int, sequence: int
) -> Op[Fetched]:
    """Move up to `count` jobs from the queues into the private hash. [REL-1] [REL-14] [REL-26]

    See `script_fetch` for the arguments.
    """
    reply = yield script_fetch(keys, identity, queues, count=count, sequence=sequence)
    return read_fetched(reply)


def script_fetch(
    keys: Keys, identity: str, queues: Sequence[str], *, count: int, sequence: int
) -> Script:
    """Return a fetch as a step, which may share a batch with outcomes.

    `read_fetched` reads its reply.

    Args:
        keys: Key names.
        identity: Identity of the process that takes the jobs.
        queues: Queue names, in the order to look at them.
        count: Maximum number of jobs.
        sequence: First sequence number. This process must not have used it or the `count` numbers
            that follow.
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
    """Return the reply to `script_fetch`, decoded.

    Raises:
        RedisRefused: The reply is an error, as replies to parts of a batch can be.
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
        queue = private_queue(name)
        if returned == b"0" == recovered:  # nearly all
            jobs.append(InFlightJob(name, queue, text))
        else:
            jobs.append(InFlightJob(name, queue, text, int(returned), int(recovered)))
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
    """Return the step that ends jobs, `failed` or not, and stores nothing else. [REL-2] [REL-24]

    `repeated`, here and below, means that the same call was made before and got no reply. Then a
    missing entry does not show that the job was lost to a recovery. [REL-23]

    The reply lists the fields that were no longer held.
    """
    return Script(
        "done",
        [keys.private(identity), *_counted(keys, day)],
        [DAY_TTL_S, int(failed), int(repeated), *fields],
    )


def script_finish(
    keys: Keys,
    identity: str,
    ends: Sequence[tuple[str, Outcome]],
    *,
    day: str,
    dead_limits: DeadSetLimits | None = None,
    repeated: bool = False,
) -> Script:
    """Return the step that stores outcomes and all that goes with them. [RETRY-9] [DEAD-1] [ITER-4]

    Args:
        keys: Key names.
        identity: Identity of the process that holds the jobs.
        ends: Field in the private hash, and outcome. All outcomes have one `place` and one
            `counted`; if the place is a queue, it is the same queue.
        day: UTC date of the daily counters.
        dead_limits: How to trim the place, and the score there; None to trim nothing.
        repeated: See `script_done`.

    The reply lists the fields that were no longer held.
    """
    field, first = ends[0]
    queue = first.queue or private_queue(field) if first.place == "queue" else ""
    size = max(outcome.words for _, outcome in ends)
    words: list[Arg] = [DAY_TTL_S, first.counted, int(repeated), queue]
    words += ("", "") if dead_limits is None else (dead_limits.oldest, dead_limits.limit)
    words.append(size)
    more: list[str] = []
    for field, outcome in ends:
        at: Arg = outcome.at if dead_limits is None else dead_limits.now
        words += (field, at if outcome.place else "", outcome.text)
        if size == 3:
            continue
        result = outcome.result
        words += (outcome.cancelled, *((0, b"") if result is None else result[1:]))
        if result is not None:
            more.append(keys.result(result.jid))
        words.append("" if outcome.unlocks is None else outcome.unlocks[1])
        if outcome.unlocks is not None:
            more.append(keys.unique(outcome.unlocks[0]))
        if size == 14:
            words += ("", b"") if outcome.next is None else outcome.next
            ended = outcome.ended
            if ended is None:
                words += ("",) * 4
            else:
                words += (ended.jid, ended.how, ended.member.depth, ended.at)
            words.append("" if outcome.output is None else outcome.output[1])
        if outcome.next is not None:
            more.append(keys.queue(outcome.next.queue))
        if outcome.ended is not None:
            more += batch_keys(keys, outcome.ended.member)
        if outcome.output is not None:
            more.append(keys.output(outcome.output[0]))
    return Script(
        "finish",
        [
            *(keys.private(identity), first.key(keys, queue), *_counted(keys, day)),
            *(keys.queues, keys.expired, keys.cancelled, *more),
        ],
        words,
    )


def set_result(keys: Keys, result: ResultToStore) -> Command:
    """Return the step that keeps a result alone, for a job that no private hash holds."""
    return command("SET", keys.result(result.jid), result.text, "EX", result.seconds)


def put_back(
    keys: Keys,
    identity: str,
    fields: Iterable[str],
    *,
    started: bool,
    now: float = math.inf,
    repeated: bool = False,
) -> Op[int]:
    """Return held jobs to the tails of their queues, to run next. [FETCH-6] [REL-22] [SIG-5]

    `started` jobs count as put back unfinished. The count of a job is kept for 72 h from epoch
    second `now`. With the default, it is kept until the first 72 h without any return. [REL-7]
    For `repeated` see `script_done`.

    Returns:
        Number of jobs that were still held.
    """
    total = 0
    for queue_keys, moves in _moves(keys, fields):
        total += yield Script(
            "put_back",
            [
                *(keys.private(identity), keys.returned, keys.returned_at, keys.lost, keys.queues),
                *queue_keys,
            ],
            [REMEMBER_RETURNED_S if started else 0, now, int(repeated), *moves],
        )
    return total


def reclaim(keys: Keys, identity: str, numbers: Collection[range]) -> Op[int]:
    """Return the jobs that a process holds under these sequence numbers to their queues. [REL-8]

    This is for fetches without a reply, because the server may have carried them out.

    Returns:
        Number of jobs that were put back.
    """
    held = yield from held_fields(keys, identity)
    fields = [field for field in held if any(sequence_number(field) in span for span in numbers)]
    return (yield from put_back(keys, identity, fields, started=False))


def held_fields(keys: Keys, identity: str) -> Op[list[str]]:
    """Return the private entries of a process; other fields of the hash stay untouched."""
    fields: Sequence[bytes] = yield command("HKEYS", keys.private(identity))
    texts = (field.decode("utf-8", "replace") for field in fields)
    return [text for text in texts if _ENTRY.match(text)]


def recover(
    keys: Keys,
    *,
    own: str,
    now: float,
    ended: Collection[str] = (),
    every: float | None = None,
    only_ended: Callable[[], bool] = lambda: False,
) -> Op[dict[str, int | str]]:
    """Return the jobs of processes without a lease to their queues. [REL-4] [REL-11] [REL-17]

    Args:
        keys: Key names.
        own: The identity of the caller, whose jobs stay.
        now: Epoch seconds.
        ended: Identities of processes that have certainly ended, so that their leases do not
            count. [REL-27]
        every: Seconds in which only one process looks at all owners; None to look in any case.
            [REL-28]
        only_ended: Returns whether to look at no owners but those in `ended`; called when the
            question who looks has been answered.

    Returns:
        Identity of each dead process to the number of its jobs that this call put back, or to the
        error that prevented it.
    """
    ended = set(ended) - {own}
    for identity in sorted(ended):
        yield from retire(keys, identity)
        yield command("UNLINK", keys.process(identity))
    oldest = now - REMEMBER_RETURNED_S
    others = stale = True
    looks = not only_ended()
    if looks and every is not None:
        looks, others, stale = yield from _may_look(keys, every, oldest)
        looks = looks and not only_ended()
    if looks and others:
        owners: Sequence[bytes] = yield command("SMEMBERS", keys.owners)
        # Members that are not UTF-8 belong to no process: every identity is a string.
        ended |= {owner.decode("utf-8", "replace") for owner in owners} - {own}
    recovered: dict[str, int | str] = {}
    for identity in (yield from _without_lease(keys, sorted(ended))):
        try:
            count = yield from _recover_from(keys, identity, now)
        except RedisRefused as error:
            recovered[identity] = f"{keys.private(identity)}: {error}"
        else:
            recovered |= {identity: count} if count else {}
    if looks and stale:
        yield from _forget(keys, oldest)
    return recovered


def name_owners(keys: Keys, cursor: bytes) -> Op[bytes]:
    """Add the owners of private hashes to the set of owners, in case it was deleted. [REL-18]

    One call looks at a limited number of keys.

    Args:
        keys: Key names.
        cursor: `b"0"` at first, then the result of the last call.

    Returns:
        The cursor of the next call; `b"0"` if this was the last.
    """
    prefix = keys.private("")
    for _ in range(SCANS_PER_CALL):
        cursor, private = yield scan_private(keys, cursor, KEYS_PER_SCAN)
        if private:
            owners = [key.removeprefix(prefix.encode()) for key in private]
            yield command("SADD", keys.owners, *owners)
        if cursor == b"0":
            break
    return cursor


def scan_private(keys: Keys, cursor: bytes, count: int) -> Command:
    """Return the step that looks for private hashes among `count` keys."""
    pattern = re.sub(r"([*?[\]\\^])", r"\\\1", keys.private("")) + "*"
    return command("SCAN", cursor, "MATCH", pattern, "COUNT", count)


def _may_look(keys: Keys, every: float, oldest: float) -> Op[tuple[bool, bool, bool]]:
    """Return whether no other process has looked in the last `every` seconds.

    The same message asks what a look would find, so that a process without others needs no more:
    whether there may be other owners, and counts of a return at epoch second `oldest` or before.
    """
    free, owners, old = yield Batch(
        [
            command("SET", keys.recovery, "1", "NX", "PX", max(int(every * 1000), 1)),
            command("SCARD", keys.owners),
            command("ZRANGE", keys.returned_at, "-inf", oldest, "BYSCORE", "LIMIT", 0, 1),
        ]
    )
    # An error lets it look: a server without memory left refuses the lock, and recovery needs none.
    return free is not None, owners != 1, old != []


def _without_lease(keys: Keys, identities: Sequence[str]) -> Op[list[str]]:
    dead: list[str] = []
    for start in range(0, len(identities), LEASES_PER_BATCH):
        part = identities[start : start + LEASES_PER_BATCH]
        leases = yield Batch([command("EXISTS", keys.process(identity)) for identity in part])
        dead += (identity for identity, lease in zip(part, leases, strict=True) if lease == 0)
    return dead


def resign(keys: Keys, identity: str, *, now: float) -> Op[int]:
    """Put back all held jobs and stop being an owner. [REL-20] [REL-21]

    A process that puts its jobs back before it stops does not count as crashed. [REL-10] It then
    gives up its lease, so that a fetch that the server carries out from now on takes nothing, and
    other processes can recover at once the jobs that are left nevertheless.

    Returns:
        Number of jobs that are still held.
    """
    fields = yield from held_fields(keys, identity)
    yield from put_back(keys, identity, fields, started=True, now=now)
    yield command("UNLINK", keys.process(identity))
    # The script removes the owner in the step that finds the hash empty. Two steps would forget an
    # owner whose late fetch comes between them, and its jobs with it.
    yield _script_recover(keys, identity, now)
    held: int = yield command("HLEN", keys.private(identity))
    return held


def _recover_from(keys: Keys, identity: str, now: float) -> Op[int]:
    """Return the jobs of one process, a limited number in each step."""
    held = yield from held_fields(keys, identity)
    total = 0
    # With no jobs to move, one call is still needed to remove the owner.
    for queue_keys, moves in _moves(keys, held) or [((), ())]:
        count = yield _script_recover(keys, identity, now, queue_keys, moves)
        if count < 0:
            break
        total += count
    return total


def _script_recover(
    keys: Keys,
    identity: str,
    now: float,
    queue_keys: Sequence[str] = (),
    moves: Sequence[Arg] = (),
) -> Script:
    return Script(
        "recover",
        [
            keys.private(identity),
            keys.process(identity),
            keys.owners,
            keys.returned,
            keys.returned_at,
            keys.recovered,
            keys.queues,
            *queue_keys,
        ],
        [identity, REMEMBER_RETURNED_S, now, *moves],
    )


def _forget(keys: Keys, oldest: float) -> Op[None]:
    """Forget the counts of jobs whose last return was at epoch second `oldest` or before.

    [REL-25]
    """
    step = Script("forget", [keys.returned, keys.returned_at], [oldest, DIGESTS_PER_CALL])
    while (yield step) == DIGESTS_PER_CALL:
        pass


def _counted(keys: Keys, day: str) -> list[str]:
    """Return the keys of the counters that every outcome changes, in the order of the scripts."""
    return [*stat_keys(keys, day), keys.returned, keys.returned_at, keys.lost]


def _moves(keys: Keys, fields: Iterable[str]) -> list[tuple[Sequence[str], Sequence[Arg]]]:
    """Return the parameters of script calls: queue keys, and pairs (field, index of its queue key).

    The job that was fetched last comes first. So the job that was fetched first ends nearest to
    the tail and runs first again.
    """
    ordered = sorted(fields, key=sequence_number, reverse=True)
    calls: list[tuple[Sequence[str], Sequence[Arg]]] = []
    for start in range(0, len(ordered), MOVES_PER_CALL):
        index: dict[str, int] = {}
        moves: list[Arg] = []
        for field in ordered[start : start + MOVES_PER_CALL]:
            key = keys.queue(private_queue(field))
            moves += (field, index.setdefault(key, len(index) + 1))
        calls.append((list(index), moves))
    return calls
