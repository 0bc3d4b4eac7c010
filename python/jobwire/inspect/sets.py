"""Operations that find and change entries by their exact bytes. [INSP-4] to [INSP-9] [INSP-15]"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from jobwire.application.generation import GenerationSetting
from jobwire.errors import ConfigError, MalformedPayload, RedisRefused
from jobwire.inspect.entry import QUEUE, Entry, SetName, entry, spelled
from jobwire.inspect.filters import Filter
from jobwire.inspect.reading import ask, items, raw, score
from jobwire.inspect.walking import BATCH_SIZE, ListWalk, Scan, SetWalk, Walk
from jobwire.protocol.dead_set import DeadSetLimits, dead_key, trim
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import edit
from jobwire.protocol.promotion import promoted
from jobwire.protocol.pushing import detect_generation
from jobwire.protocol.removal import killing, removing
from jobwire.protocol.times import Generation, epoch
from jobwire.protocol.wire import Arg, Batch, Op, Script, command

__all__ = [
    "Action",
    "PageAct",
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
    "page_act",
    "pause",
    "reschedule",
    "retried",
    "set_key",
    "sweep",
    "sweep_queue",
    "walk",
]

Action = Literal["retry", "add_to_queue", "kill", "delete"]
_SETS = ("schedule", "retry", "dead", "unreadable")


@dataclass(frozen=True, slots=True)
class Swept:
    """Progress of a change of many entries.

    Attributes:
        total: Number of entries at the start.
        seen: Number of entries examined.
        matched: Number of entries that the filter matched.
        done: Number of entries that this call changed.
        left: Number of entries that cannot be changed: payloads that name no queue, or a queue
            whose key is not a list.
    """

    total: int
    seen: int = 0
    matched: int = 0
    done: int = 0
    left: int = 0


Progress: TypeAlias = Callable[[Swept], None]
PageAct: TypeAlias = Callable[[Sequence[Entry]], Op[tuple[int, int]]]
"""Changes a page of entries; returns how many it changed, and how many it cannot change."""


def set_key(keys: Keys, name: SetName) -> str:
    """Return the key of a set.

    Raises:
        ConfigError: The name is unknown.
    """
    if name not in _SETS:
        raise ConfigError(f"set: {name!r} is not one of {', '.join(_SETS)}")
    key: str = getattr(keys, name)
    return key


def walk(keys: Keys, name: SetName, *, rising: bool = False) -> SetWalk:
    """Return a walk through a set, highest score first unless `rising`."""
    return SetWalk(set_key(keys, name), name, rising=rising)


def escape(text: str) -> str:
    r"""Return a pattern that matches only this text: `*?[]\` are escaped. [INSP-17]"""
    return re.sub(r"[*?\[\]\\]", r"\\\g<0>", text)


def find_in_set(
    keys: Keys, name: SetName | Literal["parked"], jid: str, *, page: int = BATCH_SIZE
) -> Op[Entry | None]:
    """Return the entry with this job id. O(n) for the server. [INSP-10]

    The server looks at `page` members in each step.
    """
    # JSON can write other characters in several ways, which one pattern cannot match.
    pattern = f"*{escape(jid)}*" if spelled(jid) else "*"
    key = keys.parked if name == "parked" else set_key(keys, name)
    return (yield from _find(Scan(key, name, pattern, page=page), jid))


def find_in_queue(keys: Keys, queue: str, jid: str) -> Op[Entry | None]:
    """Return the newest job of a queue with this id. O(n), page by page."""
    return (yield from _find(ListWalk(keys, queue), jid))


def fetch(
    keys: Keys, name: SetName, lowest: float, highest: float, jid: str | None
) -> Op[list[Entry]]:
    """Return the entries with a score from `lowest` to `highest`; only those of `jid` if given."""
    step = command(
        "ZRANGE", set_key(keys, name), repr(lowest), repr(highest), "BYSCORE", "WITHSCORES"
    )
    (reply,) = yield from ask([step])
    flat = items(reply)
    pairs = zip(flat[::2], flat[1::2], strict=True)
    entries = [entry(member, name, score(at)) for member, at in pairs]
    return [one for one in entries if jid is None or one.jid == jid]


# -- one entry


def delete(keys: Keys, one: Entry, *, now: float) -> Op[bool]:
    """Remove an entry, with its lock and its place in a batch; return True if it still existed.

    [INSP-4] [X-UNIQ-8] [X-BATCH-6]
    """
    of_list = one.place.startswith(QUEUE)
    key = raw(keys.queue(one.queue)) if of_list else _own_set(keys, one)
    (step,) = removing(keys, key, [one.payload], now=now, of_list=of_list)
    return bool((yield step))


def retried(
    one: Entry, *, now: float, generation: Generation, count: bool = True
) -> tuple[str, bytes]:
    """Return the queue of an entry and its text there. [INSP-5] [INSP-6] [INSP-16]

    A `retry_count` that is not an integer stays as it is. [INSP-21] [INSP-22]

    Args:
        one: The entry.
        now: Epoch seconds.
        generation: Generation of the times to write.
        count: True to subtract 1 from `retry_count`, so that this attempt does not count.

    Raises:
        MalformedPayload: The payload cannot be read, or names no queue.
    """
    if one.fault:
        raise one.fault
    text = one.payload
    if count and one.retry_count is not None:
        text = edit(text, {"retry_count": one.retry_count - 1})
    return promoted(text, now=now, generation=generation)


def move_to_queue(
    keys: Keys,
    one: Entry,
    *,
    now: float,
    count: bool,
    generation: GenerationSetting = "auto",
) -> Op[bool]:
    """Move an entry from its set to its queue; return True if it still existed.

    Raises:
        MalformedPayload: The payload cannot be read, or names no queue; the entry stays. [INSP-23]
        RedisRefused: The key of its queue is not a list; the entry stays.
    """
    key = _own_set(keys, one)
    form = (yield from detect_generation(keys)) if generation == "auto" else generation
    queue, text = retried(one, now=now, generation=form, count=count)
    moved, stuck = yield _promote(keys, key, [(one, queue, text)])
    if stuck:
        raise RedisRefused(f"WRONGTYPE {keys.queue(queue)} is not a list; the job stays in {key}")
    return bool(moved)


def kill(keys: Keys, one: Entry, dead_limits: DeadSetLimits) -> Op[bool]:
    """Move an entry to the dead set and trim the set; return True if it still existed.

    [INSP-7] [INSP-29]
    """
    moved, _ = yield from _kill(keys, _own_set(keys, one), dead_limits)([one])
    return bool(moved)


def reschedule(keys: Keys, one: Entry, at: float) -> Op[bool]:
    """Change the time at which an entry is due; return True if it still existed.

    [INSP-8] [INSP-30]
    """
    key = _own_set(keys, one)
    # ZADD reports no change if the score stays the same, as for an entry that is gone.
    changed, current_score = yield Batch(
        [
            command("ZADD", key, "XX", "CH", epoch(at), one.payload),
            command("ZSCORE", key, one.payload),
        ],
        atomic=True,
    )
    return bool(changed) or current_score is not None


# -- many entries


def sweep(
    keys: Keys,
    name: SetName,
    action: Action,
    *,
    dead_limits: DeadSetLimits,
    only: Filter,
    generation: GenerationSetting = "auto",
    progress: Progress | None = None,
) -> Op[Swept]:
    """Change all entries of a set that a filter matches, lowest score first, page by page.

    Each page is one step for the server, and only one page is in memory. Entries that arrive after
    the start may be left out, and the call ends after as many entries as there were. [INSP-26]
    [INSP-27] An interruption leaves some entries changed and the others not.

    Raises:
        ConfigError: The action is not possible for this set.
    """
    key = set_key(keys, name)
    act = yield from page_act(keys, name, action, dead_limits=dead_limits, generation=generation)
    total: int = yield command("ZCARD", key)
    return (
        yield from _sweep(SetWalk(key, name, rising=True), total, act, dead_limits, only, progress)
    )


def page_act(
    keys: Keys,
    name: SetName,
    action: Action,
    *,
    dead_limits: DeadSetLimits,
    generation: GenerationSetting = "auto",
) -> Op[PageAct]:
    """Return the step that does the action to a page of entries of a set; see `sweep`.

    Raises:
        ConfigError: The action is not possible for this set.
    """
    if action == "kill" and name in ("dead", "unreadable"):
        raise ConfigError(f"kill: entries of the set {name!r} are already dead")
    key = set_key(keys, name)
    if action == "kill":
        return _kill(keys, key, dead_limits)
    if action == "delete":
        return _remove(keys, key, dead_limits.now)
    form = (yield from detect_generation(keys)) if generation == "auto" else generation
    return _enqueue(keys, key, now=dead_limits.now, generation=form, count=action == "retry")


def sweep_queue(
    keys: Keys, queue: str, *, now: float, only: Filter, progress: Progress | None = None
) -> Op[Swept]:
    """Delete all jobs of a queue that a filter matches, newest first, page by page."""
    key = raw(keys.queue(queue))

    def act(page: Sequence[Entry]) -> Op[tuple[int, int]]:
        texts = [one.payload for one in page]
        counts = yield Batch(removing(keys, key, texts, now=now, of_list=True))
        return sum(count for count in counts if type(count) is int), 0

    total: int = yield command("LLEN", key)
    return (
        yield from _sweep(ListWalk(keys, queue), total, act, DeadSetLimits(now), only, progress)
    )


def clear_set(keys: Keys, name: SetName) -> Op[int]:
    """Delete a whole set in one step; return the number of its entries. [INSP-24]"""
    key = set_key(keys, name)
    count, _ = yield Batch([command("ZCARD", key), command("UNLINK", key)], atomic=True)
    return int(count)


def clear_queue(keys: Keys, queue: str) -> Op[int]:
    """Delete a queue and its registration in one step; return the number of its jobs. [INSP-9]"""
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
    """Pause or unpause a queue for jobwire's workers; return True if that changed its state.

    Sidekiq's workers ignore the pause. [REL-9]
    """
    return bool((yield command("SADD" if paused else "SREM", keys.paused, raw(queue))))


# -- helpers


def _sweep(
    walk: Walk,
    total: int,
    act: PageAct,
    dead_limits: DeadSetLimits,
    only: Filter,
    progress: Progress | None,
) -> Op[Swept]:
    swept = Swept(total)
    while swept.seen < total and (page := (yield from walk.next())):
        # The limit, because a changed job can come back with a later score, if it fails again.
        page = page[: total - swept.seen]
        matched = [one for one in page if only.matches(one, now=dead_limits.now)]
        done, left = (yield from act(matched)) if matched else (0, 0)
        swept = replace(
            swept,
            seen=swept.seen + len(page),
            matched=swept.matched + len(matched),
            done=swept.done + done,
            left=swept.left + left,
        )
        if progress:
            progress(swept)
    return swept


def _enqueue(keys: Keys, key: str, *, now: float, generation: Generation, count: bool) -> PageAct:
    def act(page: Sequence[Entry]) -> Op[tuple[int, int]]:
        moves = []
        for one in page:
            try:
                moves.append((one, *retried(one, now=now, generation=generation, count=count)))
            except MalformedPayload:
                continue
        moved, stuck = (yield _promote(keys, key, moves)) if moves else (0, 0)
        return moved, stuck + len(page) - len(moves)

    return act


def _remove(keys: Keys, key: str, now: float) -> PageAct:
    def act(page: Sequence[Entry]) -> Op[tuple[int, int]]:
        steps = removing(keys, key, [one.payload for one in page], now=now)
        if len(steps) == 1:
            return (yield steps[0]), 0
        return sum((yield Batch(steps, atomic=True))), 0

    return act


def _kill(keys: Keys, key: str, dead_limits: DeadSetLimits) -> PageAct:
    def kill_again(page: Sequence[Entry]) -> Op[tuple[int, int]]:
        # The script would add to the set and then remove from it: the entry only gets a new score.
        scored = [word for one in page for word in (dead_limits.now, one.payload)]
        found = [command("ZSCORE", key, one.payload) for one in page]
        _, *replies = yield Batch(
            [command("ZADD", key, "XX", *scored), *found, *trim(key, dead_limits)], atomic=True
        )
        return sum(reply is not None for reply in replies[: len(page)]), 0

    def act(page: Sequence[Entry]) -> Op[tuple[int, int]]:
        done = 0
        members: dict[str, list[bytes]] = {}
        steps: list[Script] = []
        for one in page:
            target = dead_key(keys, one.fault) if one.fault else keys.dead
            step = killing(keys, key, one.payload, dead=target, dead_limits=dead_limits)
            if step is not None:
                steps.append(step)
            else:
                members.setdefault(target, []).append(one.payload)
        for target, payloads in members.items():
            killed: Sequence[bytes] = yield Script(
                "kill_due",
                [key, target],
                [dead_limits.now, dead_limits.oldest, dead_limits.limit, *payloads],
            )
            done += len(killed)
        if steps:
            done += sum((yield Batch(steps, atomic=True)))
        return done, 0

    return kill_again if key == keys.dead else act


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
        raise ConfigError(f"job {one.jid} is in {one.place}; there it can only be deleted")
    key: str = getattr(keys, one.place)
    return key


def _find(walk: Walk, jid: str) -> Op[Entry | None]:
    while page := (yield from walk.next()):
        for one in page:
            if one.jid == jid:
                return one
    return None
