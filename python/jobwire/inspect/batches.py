"""The batches of an application, for people. [X-BATCH-1]"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from jobwire.inspect.locks import jobs_of
from jobwire.inspect.reading import ask, items, name, number, raw, required, whole
from jobwire.inspect.sets import escape
from jobwire.inspect.summary import members as registered
from jobwire.inspect.walking import SetWalk
from jobwire.protocol import batches
from jobwire.protocol.batches import BatchStatus
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import ErrorReply, Op, command

__all__ = [
    "BatchMembers",
    "Batches",
    "MissingMembers",
    "cancel",
    "members",
    "missing",
    "of_job",
    "read",
]

T = TypeVar("T")
KEYS_PER_SCAN = 1_000
AT_ONCE = 500  # batches of one round trip
MAX_MEMBERS = 100  # of each kind


@dataclass(frozen=True, slots=True)
class Batches:
    """Some batches, the newest first.

    Attributes:
        batches: The batches.
        complete: False if there may be more, because a limit was reached.
    """

    batches: Sequence[BatchStatus]
    complete: bool

    def nested(self) -> Iterator[tuple[int, BatchStatus]]:
        """Return the batches in the order of a tree, each with the number of those around it.

        A batch whose parent was not found counts as in none.
        """
        inside: dict[str, list[BatchStatus]] = {}
        found = {one.id for one in self.batches}
        for one in self.batches:
            parent = one.parent.batch if one.parent is not None else ""
            inside.setdefault(parent if parent in found else "", []).append(one)
        left = [(0, one) for one in reversed(inside.pop("", []))]
        while left:
            depth, one = left.pop()
            yield depth, one
            left += [(depth + 1, each) for each in reversed(inside.pop(one.id, []))]


@dataclass(frozen=True, slots=True)
class BatchMembers:
    """Ids of some members of a batch, at most 100 of each kind.

    Attributes:
        open: Members that have not ended; `batch:<id>` for a batch.
        failed: Members that ended without success.
    """

    open: Sequence[str]
    failed: Sequence[str]


@dataclass(frozen=True, slots=True)
class MissingMembers:
    """Open members of a batch that were found in no place.

    Attributes:
        jids: Their ids.
        complete: False if a limit ended the search, so that some may be in a place after all, and
            others may be missing.
    """

    jids: Sequence[str]
    complete: bool


def read(keys: Keys, *, limit: int, examine: int) -> Op[Batches]:
    """Return the newest batches of those that are found.

    Args:
        keys: Key names.
        limit: Maximum number.
        examine: Maximum number of keys of the server to examine.
    """
    pattern = escape(keys.batch("")) + "*"
    found: set[str] = set()
    cursor: Any = b"0"
    for _ in range(0, examine, KEYS_PER_SCAN):
        (reply,) = yield from ask(
            [command("SCAN", cursor, "MATCH", pattern, "COUNT", KEYS_PER_SCAN, "TYPE", "hash")]
        )
        cursor, page = items(reply) or (b"0", [])
        found.update(name(key).removeprefix(keys.batch("")) for key in page)
        if not whole(cursor):
            break
    newest = yield from _newest(keys, sorted(found), limit)
    statuses: list[BatchStatus] = []
    for part in _parts(newest):
        steps = [step for one in part for step in batches.status_steps(keys, one)]
        replies = yield from ask(steps)
        for one, *three in zip(part, replies[::3], replies[1::3], replies[2::3], strict=True):
            if not any(_is_of_another_type(reply) for reply in three):
                statuses += filter(None, [batches.status_of(one, *map(required, three))])
    return Batches(statuses, not whole(cursor) and len(found) <= limit)


def of_job(keys: Keys, batch_id: str) -> Op[BatchStatus | None]:
    """Return a batch; None if there is none, or if the user may not read it."""
    replies = yield from ask(batches.status_steps(keys, batch_id))
    if any(isinstance(reply, ErrorReply) for reply in replies):
        return None
    return batches.status_of(batch_id, *replies)


def members(keys: Keys, batch_id: str) -> Op[BatchMembers]:
    """Return the ids of some members, however many there are."""
    replies = yield from ask(
        [
            command("SSCAN", raw(key), 0, "COUNT", MAX_MEMBERS)
            for key in (keys.batch_open(batch_id), keys.batch_failed(batch_id))
        ]
    )
    some = [sorted(map(name, (items(reply) or (0, []))[1]))[:MAX_MEMBERS] for reply in replies]
    return BatchMembers(*some)


def missing(keys: Keys, batch_id: str, *, examine: int) -> Op[MissingMembers]:
    """Return the open members that are in no queue, set, private hash or work record.

    A job that moves between two places may be found in neither. So the search has two turns, and
    a member must be open after both. A job may still run: a worker of Sidekiq, or of basic fetch,
    tells what it runs only with its heartbeat. A batch is missing if it is gone.

    Args:
        keys: Key names.
        batch_id: Its id.
        examine: Maximum number of members, and of jobs that wait.
    """
    before, complete = yield from _open(keys, batch_id, examine)
    inside = {one for one in before if one.startswith("batch:")}
    lost = before - inside
    for _ in range(2):
        others = [SetWalk(keys.dead, "dead", page=KEYS_PER_SCAN)]
        others.append(SetWalk(keys.parked, "parked", page=KEYS_PER_SCAN))
        lost -= (yield from jobs_of(keys, lost, examine, others)).keys()
    for part in _parts(sorted(inside)):
        replies = yield from ask(
            [command("EXISTS", raw(keys.batch(one.removeprefix("batch:")))) for one in part]
        )
        lost |= {one for one, reply in zip(part, replies, strict=True) if not required(reply)}
    after, complete_after = yield from _open(keys, batch_id, examine)
    waiting = yield from _waiting(keys)
    return MissingMembers(sorted(lost & after), complete and complete_after and waiting <= examine)


def cancel(keys: Keys, batch_id: str, *, now: float) -> Op[bool]:
    """Cancel a batch; return False if it is complete, cancelled or gone. [X-BATCH-7]

    Args:
        keys: Key names.
        batch_id: Its id.
        now: Epoch seconds.
    """
    status = yield from batches.read_status(keys, batch_id)
    if status is None or status.state not in ("open", "closed"):
        return False
    at = batches.time_text(now, 8)  # no callback is pushed, so nothing is written with it
    return bool((yield batches.script_end(keys, status.membership, "cancelled", at=at)))


def _open(keys: Keys, batch_id: str, limit: int) -> Op[tuple[set[str], bool]]:
    """Return the open members, and whether these are all."""
    found: set[str] = set()
    cursor: Any = b"0"
    while True:
        step = command("SSCAN", raw(keys.batch_open(batch_id)), cursor, "COUNT", KEYS_PER_SCAN)
        cursor, page = items(required((yield from ask([step]))[0]))
        found.update(map(name, page))
        if not whole(cursor) or len(found) >= limit:
            return found, not whole(cursor)


def _waiting(keys: Keys) -> Op[int]:
    """Return the number of jobs in the queues and sets that `missing` examines."""
    queues, _ = yield from registered(keys.queues)
    sets = (keys.retry, keys.schedule, keys.dead, keys.parked)
    sizes = yield from ask(
        [
            *(command("ZCARD", key) for key in sets),
            *(command("LLEN", raw(keys.queue(queue))) for queue in queues),
        ]
    )
    return sum(map(whole, sizes))


def _newest(keys: Keys, found: Sequence[str], limit: int) -> Op[Sequence[str]]:
    """Return the ids of the batches that were made last."""
    made: dict[str, float] = {}
    for part in _parts(found):
        replies = yield from ask(
            [command("HGET", raw(keys.batch(one)), "created_at") for one in part]
        )
        made.update(zip(part, (number(reply) or 0.0 for reply in replies), strict=True))
    return sorted(made, key=lambda one: (-made[one], one))[:limit]


def _is_of_another_type(reply: object) -> bool:
    return isinstance(reply, ErrorReply) and reply.says("WRONGTYPE")


def _parts(all_of_them: Sequence[T]) -> list[Sequence[T]]:
    return [all_of_them[start : start + AT_ONCE] for start in range(0, len(all_of_them), AT_ONCE)]
