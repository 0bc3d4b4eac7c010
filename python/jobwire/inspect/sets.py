"""Finding and changing entries of queues and sets, each by its exact bytes. [INSP-4] to [INSP-9]"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from jobwire.errors import ConfigError, MalformedPayload, RedisRefused
from jobwire.inspect.entry import QUEUE, Entry, SetName, entry
from jobwire.inspect.filters import Filter
from jobwire.inspect.reading import ask, items, raw, score
from jobwire.inspect.walking import ListWalk, Scan, SetWalk, Walk
from jobwire.protocol.dead_set import DeadSetLimits, dead_key
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import edit
from jobwire.protocol.promotion import promoted
from jobwire.protocol.pushing import detect_generation
from jobwire.protocol.times import Generation, epoch
from jobwire.protocol.wire import Arg, Batch, Op, Script, command

__all__ = [
    "Action",
    "Progress",
    "Swept",
    "clear_queue",
    "clear_set",
    "delete",
    "escape",
    "fetch",
    "find_in_queue",
    "find_in_set",
    "kill",
    "move_to_queue",
    "pause",
    "reschedule",
    "retried",
    "set_key",
    "sweep",
    "sweep_queue",
    "walk",
]

Action = Literal["retry", "add_to_queue", "kill", "delete"]
_SPELLED_ONE_WAY = re.compile(r"[\w :.,;!#$%()*+=?@\[\]^{|}~-]*", re.ASCII)
_SETS = ("schedule", "retry", "dead", "unreadable")


@dataclass(frozen=True, slots=True)
class Swept:
    """How far a change of many entries has come.

    Attributes:
        total: Entries that there were at the start.
        seen: Entries looked at.
        matched: Those that the filter meant.
        done: Those that this call changed.
        left: Those that cannot be: payloads that say no queue, or one whose key is no list.
    """

    total: int
    seen: int = 0
    matched: int = 0
    done: int = 0
    left: int = 0


Progress: TypeAlias = Callable[[Swept], None]
_Act: TypeAlias = Callable[[Sequence[Entry]], Op[tuple[int, int]]]


def set_key(keys: Keys, name: SetName) -> str:
    """Return the key of a set.

    Raises:
        ConfigError: There is no such set.
    """
    if name not in _SETS:
        raise ConfigError(f"set: {name!r} is none of {', '.join(_SETS)}")
    key: str = getattr(keys, name)
    return key


def walk(keys: Keys, name: SetName) -> SetWalk:
    """Return a walk through a set, highest score first."""
    return SetWalk(set_key(keys, name), name)


def escape(text: str) -> str:
    r"""Return a pattern for just this text: `*`, `?`, `[`, `]` and `\` escaped. [INSP-10]"""
    return re.sub(r"[*?\[\]\\]", r"\\\g<0>", text)


def find_in_set(keys: Keys, name: SetName, jid: str) -> Op[Entry | None]:
    """Return the entry with just this job id. O(n) for the server. [INSP-10]"""
    # JSON can spell other characters in several ways, which no pattern knows.
    pattern = f"*{escape(jid)}*" if _SPELLED_ONE_WAY.fullmatch(jid) else "*"
    return (yield from _find(Scan(set_key(keys, name), name, pattern), jid))


def find_in_queue(keys: Keys, queue: str, jid: str) -> Op[Entry | None]:
    """Return the newest job of a queue with this id. O(n), a page at a time."""
    return (yield from _find(ListWalk(keys, queue), jid))


def fetch(
    keys: Keys, name: SetName, lowest: float, highest: float, jid: str | None
) -> Op[list[Entry]]:
    """Return the entries with a score in a range, both ends included; of one jid if given."""
    step = command(
        "ZRANGE", set_key(keys, name), repr(lowest), repr(highest), "BYSCORE", "WITHSCORES"
    )
    (reply,) = yield from ask([step])
    flat = items(reply)
    pairs = zip(flat[::2], flat[1::2], strict=True)
    found = [entry(member, name, score(at)) for member, at in pairs]
    return [each for each in found if jid is None or each.jid == jid]


# -- one entry


def delete(keys: Keys, one: Entry) -> Op[bool]:
    """Remove an entry; say whether it was still there. [INSP-4]"""
    if one.place.startswith(QUEUE):
        count = yield command("LREM", raw(keys.queue(one.queue)), 1, one.payload)
    else:
        count = yield command("ZREM", _own_set(keys, one), one.payload)
    return bool(count)


def retried(
    one: Entry, *, now: float, generation: Generation, count: bool = True
) -> tuple[str, bytes]:
    """Return the queue of an entry and its text there. [INSP-5] [INSP-6]

    Args:
        one: The entry.
        now: Epoch seconds.
        generation: How to write times.
        count: Whether to give the attempt back that `retry_count` has counted.

    Raises:
        MalformedPayload: It cannot be read, or names no queue.
    """
    if one.fault:
        raise one.fault
    text = one.payload
    if count and one.retry_count is not None:
        text = edit(text, {"retry_count": one.retry_count - 1})
    return promoted(text, now=now, generation=generation)


def move_to_queue(keys: Keys, one: Entry, *, now: float, count: bool) -> Op[bool]:
    """Push an entry to its queue in place of leaving it in its set; say whether it was there.

    Raises:
        MalformedPayload: It cannot be read, or names no queue.
        RedisRefused: The key of its queue is no list; the entry stays.
    """
    key = _own_set(keys, one)
    generation = yield from detect_generation(keys)
    queue, text = retried(one, now=now, generation=generation, count=count)
    moved, stuck = yield _promote(keys, key, [(one, queue, text)])
    if stuck:
        raise RedisRefused(f"WRONGTYPE {keys.queue(queue)} is no list; the job stays in {key}")
    return bool(moved)


def kill(keys: Keys, one: Entry, dead_limits: DeadSetLimits) -> Op[bool]:
    """Move an entry to the dead set, which is trimmed; say whether it was there. [INSP-7]"""
    moved, _ = yield from _kill(keys, _own_set(keys, one), dead_limits)([one])
    return bool(moved)


def reschedule(keys: Keys, one: Entry, at: float) -> Op[bool]:
    """Change when an entry is due; say whether it was there. [INSP-8]"""
    key = _own_set(keys, one)
    # Its own score again is no change, and would look like an entry that is gone.
    changed, there = yield Batch(
        [
            command("ZADD", key, "XX", "CH", epoch(at), one.payload),
            command("ZSCORE", key, one.payload),
        ],
        atomic=True,
    )
    return bool(changed) or there is not None


# -- many


def sweep(
    keys: Keys,
    name: SetName,
    action: Action,
    *,
    dead_limits: DeadSetLimits,
    only: Filter,
    progress: Progress | None = None,
) -> Op[Swept]:
    """Change all entries of a set that a filter means, lowest score first, page by page.

    Each page is one step for the server, and only a page is in memory. What comes in after the
    start is not waited for. Interrupted at any point, some entries are changed and the rest not.

    Raises:
        ConfigError: The action makes no sense there.
    """
    if action == "kill" and name in ("dead", "unreadable"):
        raise ConfigError(f"kill: what is in the set {name!r} is dead already")
    key = set_key(keys, name)
    act: _Act
    if action == "kill":
        act = _kill(keys, key, dead_limits)
    elif action == "delete":
        act = _remove(key)
    else:
        generation = yield from detect_generation(keys)
        act = _enqueue(
            keys, key, now=dead_limits.now, generation=generation, count=action == "retry"
        )
    total: int = yield command("ZCARD", key)
    return (
        yield from _sweep(SetWalk(key, name, rising=True), total, act, dead_limits, only, progress)
    )


def sweep_queue(
    keys: Keys, queue: str, *, now: float, only: Filter, progress: Progress | None = None
) -> Op[Swept]:
    """Delete all jobs of a queue that a filter means, newest first, page by page."""
    key = raw(keys.queue(queue))

    def act(page: Sequence[Entry]) -> Op[tuple[int, int]]:
        counts = yield Batch([command("LREM", key, 1, each.payload) for each in page])
        return sum(count for count in counts if type(count) is int), 0

    total: int = yield command("LLEN", key)
    return (
        yield from _sweep(ListWalk(keys, queue), total, act, DeadSetLimits(now), only, progress)
    )


def clear_set(keys: Keys, name: SetName) -> Op[int]:
    """Delete a whole set in one step; return how many it held. [INSP-9]"""
    key = set_key(keys, name)
    count, _ = yield Batch([command("ZCARD", key), command("UNLINK", key)], atomic=True)
    return int(count)


def clear_queue(keys: Keys, queue: str) -> Op[int]:
    """Delete a queue and its registration in one step; return how many it held. [INSP-9]"""
    key = raw(keys.queue(queue))
    count, _, _ = yield Batch(
        [
            command("LLEN", key),
            command("UNLINK", key),
            command("SREM", keys.queues, raw(queue)),
        ],
        atomic=True,
    )
    return int(count)


def pause(keys: Keys, queue: str, *, paused: bool) -> Op[bool]:
    """Tell jobwire's workers to leave a queue alone, or to take from it; say whether that is new.

    Sidekiq's own workers do not look there. [REL-9]
    """
    return bool((yield command("SADD" if paused else "SREM", keys.paused, raw(queue))))


# -- parts


def _sweep(
    way: Walk,
    total: int,
    act: _Act,
    dead_limits: DeadSetLimits,
    only: Filter,
    progress: Progress | None,
) -> Op[Swept]:
    swept = Swept(total)
    while swept.seen < total and (page := (yield from way.next())):
        # What was changed can come back with a later score, as by a worker that fails at once.
        page = page[: total - swept.seen]
        meant = [each for each in page if only.matches(each, now=dead_limits.now)]
        done, left = (yield from act(meant)) if meant else (0, 0)
        swept = replace(
            swept,
            seen=swept.seen + len(page),
            matched=swept.matched + len(meant),
            done=swept.done + done,
            left=swept.left + left,
        )
        if progress:
            progress(swept)
    return swept


def _enqueue(keys: Keys, key: str, *, now: float, generation: Generation, count: bool) -> _Act:
    def act(page: Sequence[Entry]) -> Op[tuple[int, int]]:
        moves = []
        for each in page:
            try:
                moves.append((each, *retried(each, now=now, generation=generation, count=count)))
            except MalformedPayload:
                continue
        moved, stuck = (yield _promote(keys, key, moves)) if moves else (0, 0)
        return moved, stuck + len(page) - len(moves)

    return act


def _remove(key: str) -> _Act:
    def act(page: Sequence[Entry]) -> Op[tuple[int, int]]:
        return (yield command("ZREM", key, *(each.payload for each in page))), 0

    return act


def _kill(keys: Keys, key: str, dead_limits: DeadSetLimits) -> _Act:
    def act(page: Sequence[Entry]) -> Op[tuple[int, int]]:
        moved = 0
        where = [dead_key(keys, each.fault) if each.fault else keys.dead for each in page]
        for target in dict.fromkeys(where):
            members = [
                each.payload for each, there in zip(page, where, strict=True) if there == target
            ]
            gone: Sequence[bytes] = yield Script(
                "kill_due",
                [key, target],
                [dead_limits.now, dead_limits.oldest, dead_limits.limit, *members],
            )
            moved += len(gone)
        return moved, 0

    return act


def _promote(keys: Keys, key: str, moves: Sequence[tuple[Entry, str, bytes]]) -> Script:
    queue_keys: dict[str, int] = {}
    words: list[Arg] = []
    for one, queue, text in moves:
        number = queue_keys.setdefault(keys.queue(queue), len(queue_keys) + 1)
        words += (one.payload, number, queue, text)
    return Script("promote", [key, keys.queues, *queue_keys], words)


def _own_set(keys: Keys, one: Entry) -> str:
    """Return the key of the set that an entry is in."""
    if one.place not in _SETS:
        raise ConfigError(f"job {one.jid} is in {one.place}, from which it can only be deleted")
    key: str = getattr(keys, one.place)
    return key


def _find(way: Walk, jid: str) -> Op[Entry | None]:
    while page := (yield from way.next()):
        for each in page:
            if each.jid == jid:
                return each
    return None
