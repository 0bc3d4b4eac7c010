"""Moving due jobs to their queues. [SCHED-5] to [SCHED-10]"""

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

BATCH = 500  # members in one call of a script: a few milliseconds of the server
_DEFAULTS = {"retry": True, "queue": "default"}
_USUAL = {"created_at", *_DEFAULTS}  # with these, and without the others, one field is new
_RARE = ("at", "enqueued_at")
AVERAGE_INTERVAL = 5.0  # seconds between two looks by anybody [SCHED-8]


@dataclass(frozen=True, slots=True)
class Promoted:
    """What one batch did.

    Attributes:
        seen: Due members found; fewer than asked for means that none is left.
        moved: Members that this caller moved; others were taken by another promoter.
        buried: Members that were no payload and went to the dead set, with the reason.
        stuck: Members that stay, because their queue's key is no list.
    """

    seen: int
    moved: int
    buried: Sequence[tuple[bytes, MalformedPayload]] = ()
    stuck: int = 0

    @property
    def taken(self) -> int:
        """Members that other promoters took in between."""
        return self.seen - self.moved - len(self.buried) - self.stuck


def promoted(text: bytes, *, now: float, generation: Generation) -> tuple[str, bytes]:
    """Return the queue of a due payload and its text on that queue. [SCHED-6]

    Only what every push writes is written: `enqueued_at`, and the defaults of what is missing.

    Raises:
        MalformedPayload: It cannot be decoded, or no queue can be made out. [SCHED-9]
    """
    fields = decode(text, queue="").fields
    queue = fields.get("queue", "default")
    if not isinstance(queue, str) or not queue:
        raise MalformedPayload("SCHED-9", "queue", f"{queue!r} is no queue name")
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

    `skip` passes over as many: those that stay, because their queue's key is no list, must not
    block the ones behind them.

    Whoever removes a member by its exact bytes pushes it, in the same step: promoters may race,
    die or lose their connection at any point, and nothing is lost or doubled. [SCHED-5] [SCHED-7]
    """
    due: Sequence[bytes] = yield command(
        "ZRANGE", zset, "-inf", now, "BYSCORE", "LIMIT", skip, limit
    )
    queue_keys: dict[str, int] = {}
    moves: list[Arg] = []
    bad: list[tuple[bytes, MalformedPayload]] = []
    for member in due:
        try:
            queue, text = promoted(member, now=now, generation=generation)
        except MalformedPayload as error:
            bad.append((member, error))
            continue
        index = queue_keys.setdefault(keys.queue(queue), len(queue_keys) + 1)
        moves += (member, index, queue, text)
    result = Promoted(seen=len(due), moved=0)
    if moves:
        moved, stuck = yield Script("promote", [zset, keys.queues, *queue_keys], moves)
        result = replace(result, moved=moved, stuck=stuck)
    for grave_name in dict.fromkeys(dead_key(keys, problem) for _, problem in bad):
        there = [each for each in bad if dead_key(keys, each[1]) == grave_name]
        buried: Sequence[bytes] = yield Script(
            "kill_due",
            [zset, grave_name],
            [
                dead_limits.now,
                dead_limits.oldest,
                dead_limits.limit,
                *(member for member, _ in there),
            ],
        )
        mine = [each for each in there if each[0] in buried]
        result = replace(result, buried=[*result.buried, *mine])
    return result


def first_wait(interval: float | None, *, jitter: float) -> float:
    """Return how long to wait before the first look, in seconds. [SCHED-8]

    Ten of them give a fleet that starts together time to register.
    """
    return 10.0 + 5.0 * jitter if interval is None else min(interval, 5.0) * jitter


def next_wait(interval: float | None, *, processes: int, jitter: float) -> float:
    """Return how long to wait before the next look, in seconds. [SCHED-8]

    Args:
        interval: A configured average, or None to let the fleet as a whole look every 5 s.
        processes: How many are registered.
        dice: Uniform draw in [0, 1).
    """
    count = max(processes, 1)
    average = count * AVERAGE_INTERVAL if interval is None else interval
    return average * (jitter + 0.5) if count < 10 else average * jitter * 2
