"""Promotion: moving due jobs to their queues. [SCHED-5] to [SCHED-10], [SCHED-16] to [SCHED-26]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from jobwire.errors import MalformedPayload
from jobwire.protocol.dead_set import DeadSetLimits, dead_key
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import can_append, decode, edit, encode
from jobwire.protocol.times import Generation, stamp
from jobwire.protocol.wire import Arg, Op, Script, command

__all__ = ["Promoted", "first_wait", "next_wait", "promote_batch", "promoted"]

BATCH = 500  # members in one call of a script, which then takes the server a few milliseconds
_DEFAULTS = {"retry": True, "queue": "default"}
# A payload with all the usual fields and no rare one gets `enqueued_at` and no other change.
_USUAL = {"created_at", *_DEFAULTS}
_RARE = ("at", "enqueued_at")
POLL_INTERVAL_S = 5.0  # average time between two polls of the whole fleet [SCHED-8]


@dataclass(frozen=True, slots=True)
class Promoted:
    """The result of one batch.

    Attributes:
        seen: Due members found. Fewer than requested means that no more are due.
        moved: Members that this caller moved to their queues.
        killed: Members that were not a payload and went to the dead set, with the reason.
        stuck: Members that stay, because the key of their queue is not a list.
    """

    seen: int
    moved: int
    killed: Sequence[tuple[bytes, MalformedPayload]] = ()
    stuck: int = 0

    @property
    def taken(self) -> int:
        """Members that other promoters took in the meantime."""
        return self.seen - self.moved - len(self.killed) - self.stuck


def promoted(text: bytes, *, now: float, generation: Generation) -> tuple[str, bytes]:
    """Return the queue of a due payload and its text on that queue. [SCHED-6] [SCHED-17]

    The text gets `enqueued_at`, and the defaults of fields that every push writes and that are
    missing. All other fields stay as they are [SCHED-19], except `at`, which is removed.
    [SCHED-18]

    Raises:
        MalformedPayload: The payload cannot be decoded, or its queue is invalid. [SCHED-9]
    """
    fields = decode(text, queue="").fields
    queue = fields.get("queue", "default")
    if not isinstance(queue, str) or not queue:
        raise MalformedPayload("SCHED-9", "queue", f"{queue!r} is not a queue name")
    moment = stamp(now, generation)
    if fields.keys() >= _USUAL and fields.keys().isdisjoint(_RARE) and can_append(text, fields):
        return queue, b'%b,"enqueued_at":%b}' % (text[:-1], encode(moment))
    changes = {"enqueued_at": moment}
    if "created_at" not in fields:
        changes = {"created_at": moment, **changes}
    return queue, edit(text, changes, defaults=_DEFAULTS, drop=("at",))


def promote_batch(
    keys: Keys,
    zset: str,
    *,
    now: float,
    generation: Generation,
    dead_limits: DeadSetLimits,
    skip: int = 0,
    limit: int = BATCH,
) -> Op[Promoted]:
    """Move up to `limit` due members of `schedule` or `retry` to their queues.

    `skip` passes over that many due members. Members stay in the set if the key of their queue is
    not a list [SCHED-26], and they must not block the members behind them. [SCHED-24]

    A promoter removes a member by its exact bytes and pushes it in the same step. Promoters may
    race, die or lose their connections at any point: no job is lost or doubled. [SCHED-5]
    [SCHED-7] [SCHED-16] [SCHED-20] [SCHED-25]
    """
    due: Sequence[bytes] = yield command(
        "ZRANGE", zset, "-inf", now, "BYSCORE", "LIMIT", skip, limit
    )
    queue_keys: dict[str, int] = {}
    moves: list[Arg] = []
    malformed: list[tuple[bytes, MalformedPayload]] = []
    for member in due:
        try:
            queue, text = promoted(member, now=now, generation=generation)
        except MalformedPayload as error:
            malformed.append((member, error))
            continue
        index = queue_keys.setdefault(keys.queue(queue), len(queue_keys) + 1)
        moves += (member, index, queue, text)
    result = Promoted(seen=len(due), moved=0)
    if moves:
        moved, stuck = yield Script("promote", [zset, keys.queues, *queue_keys], moves)
        result = replace(result, moved=moved, stuck=stuck)
    by_set: dict[str, list[tuple[bytes, MalformedPayload]]] = {}
    for member, problem in malformed:
        by_set.setdefault(dead_key(keys, problem), []).append((member, problem))
    for set_key, problems in by_set.items():
        killed: Sequence[bytes] = yield Script(
            "kill_due",
            [zset, set_key],
            [
                dead_limits.now,
                dead_limits.oldest,
                dead_limits.limit,
                *(member for member, _ in problems),
            ],
        )
        ours = [(member, problem) for member, problem in problems if member in killed]
        result = replace(result, killed=[*result.killed, *ours])
    return result


def first_wait(interval: float | None, *, jitter: float) -> float:
    """Return the seconds to wait before the first poll. [SCHED-23]

    The first ten seconds give processes that start at the same time the chance to register.
    """
    return 10.0 + 5.0 * jitter if interval is None else min(interval, 5.0) * jitter


def next_wait(interval: float | None, *, processes: int, jitter: float) -> float:
    """Return the seconds to wait before the next poll. [SCHED-8] [SCHED-22]

    Args:
        interval: The configured average in seconds; None to make all processes together poll
            every 5 s on average.
        processes: Number of registered processes.
        jitter: Uniform draw in [0, 1).
    """
    count = max(processes, 1)
    average = count * POLL_INTERVAL_S if interval is None else interval
    return average * (jitter + 0.5) if count < 10 else average * jitter * 2
