"""Limits of jobs, as their workers see them. [X-LIMIT-3]"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from jobwire.inspect.reading import ask, items, name, raw, score, whole
from jobwire.protocol.keys import Keys
from jobwire.protocol.limits import LimitOfJob, limit_of
from jobwire.protocol.wire import Command, Op, command

__all__ = ["JobLimit", "LimitPage", "LimitState", "of_job", "page", "read"]

BATCH_SIZE = 500  # limits of one round trip
MAX_SORTED = 5_000  # limits among which a page is chosen, those that were used last
MAX_HOLDERS = 10  # jobs of one limit


@dataclass(frozen=True, slots=True)
class LimitState:
    """A limit that was used in the last day.

    Attributes:
        name: Its name.
        key: Its key; empty for none.
        at_once: Number of jobs that may run at the same time; 0 for a limit of another kind.
        rate: Number of jobs that may start in `per` seconds; 0 for a limit of another kind.
        window: Number of jobs that may start in any `per` seconds; 0 for a limit of another kind.
        per: Seconds.
        burst: Number of jobs that may start together, of a rate.
        in_use: Costs of the slots that are taken; of a rate, of the tokens that are; of a window,
            of the jobs that have started in the last `per` seconds.
        waiting: Number of jobs that wait.
        free_in: Seconds until a job that comes now can start, of a window as if each job that waits
            had the cost 1; None if no clock says it, because all
            slots are taken, or other jobs wait for one.
        holders: Ids of jobs that have slots, at most 10; only `at_once` has them.
    """

    name: str
    key: str
    at_once: int
    rate: float
    window: int
    per: float
    burst: int
    in_use: int
    waiting: int
    free_in: float | None
    holders: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LimitPage:
    """Some limits, by name and key.

    Attributes:
        limits: The limits.
        total: Number of limits among which these were chosen.
        complete: False if other limits were used earlier in the last day, and are left out.
    """

    limits: Sequence[LimitState]
    total: int
    complete: bool


@dataclass(frozen=True, slots=True)
class JobLimit:
    """The limit of one job, and its place there.

    Attributes:
        limit: The limit.
        has_slot: True if the job has a slot, or one is kept for it.
        ahead: Number of jobs that wait before it; None if it does not wait.
        starts_in: Of a job that waits for a rate or a window, the seconds until it asks again.
    """

    limit: LimitState
    has_slot: bool
    ahead: int | None
    starts_in: float | None


def of_job(keys: Keys, limit: LimitOfJob, jid: str) -> Op[JobLimit]:
    """Return the limit of a job."""
    line = keys.limit(limit.ident, "line")
    time, used, waiting, ahead, place = yield from ask(
        [
            *(command("TIME"), *_reads(keys, limit)),
            *(command("ZRANK", line, raw(jid)), command("ZMSCORE", line, raw(jid))),
        ]
    )
    now = _micros(time)
    state, slots = _state(limit, used, whole(waiting), now), _taken(items(used), now)
    at = score(next(iter(items(place)), None))
    return JobLimit(
        limit=state,
        has_slot=bool(limit.at_once) and jid in map(_holder, slots),
        ahead=ahead if isinstance(ahead, int) else None,
        starts_in=None if at is None or limit.at_once else max(at - now, 0) / 1e6,
    )


def read(keys: Keys, *, limit: int) -> Op[list[LimitState]]:
    """Return limits by name and key; at most `limit`, those that were used last."""
    described = yield from _described(keys, limit)
    return (yield from _states(keys, described))


def page(keys: Keys, *, start: int, count: int, wanted: str = "") -> Op[LimitPage]:
    """Return some limits by their position among those that were used last.

    Args:
        keys: Key names.
        start: Position of the first one by name and key, from 0.
        count: Maximum number.
        wanted: Part of a name, in any case; empty for all.
    """
    described = yield from _described(keys, MAX_SORTED + 1)
    fitting = [one for one in described[:MAX_SORTED] if wanted.casefold() in one.name.casefold()]
    fitting.sort(key=lambda one: (one.name, one.key))
    states = yield from _states(keys, fitting[start : start + count])
    return LimitPage(states, len(fitting), len(described) <= MAX_SORTED)


def _described(keys: Keys, limit: int) -> Op[list[LimitOfJob]]:
    """Return the limits that were used last; the same one in several forms counts as several."""
    (members,) = yield from ask([command("ZRANGE", keys.limits, 0, limit - 1, "REV")])
    return [one for text in items(members) if (one := _limit(text)) is not None]


def _states(keys: Keys, described: Sequence[LimitOfJob]) -> Op[list[LimitState]]:
    """Return the states of limits, by name and key."""
    states: list[LimitState] = []
    for start in range(0, len(described), BATCH_SIZE):
        part = described[start : start + BATCH_SIZE]
        steps = [step for one in part for step in _reads(keys, one)]
        time, *replies = yield from ask([command("TIME"), *steps])
        now = _micros(time)
        pairs = zip(part, replies[::2], replies[1::2], strict=True)
        states += (_state(one, used, whole(line), now) for one, used, line in pairs)
    return sorted(states, key=lambda state: (state.name, state.key))


def _micros(reply: object) -> int:
    """Return the time of the server in microseconds; 0 if it may not be asked for."""
    seconds, micros = map(whole, items(reply) or (0, 0))
    return seconds * 1_000_000 + micros


def _limit(text: object) -> LimitOfJob | None:
    try:
        return limit_of(msgspec.json.decode(text)) if isinstance(text, bytes) else None
    except msgspec.DecodeError:
        return None


def _reads(keys: Keys, limit: LimitOfJob) -> Iterator[Command]:
    if limit.at_once:
        yield command("ZRANGE", keys.limit(limit.ident, "held"), 0, -1, "WITHSCORES")
    elif limit.window:
        yield command("ZRANGE", keys.limit(limit.ident, "starts"), 0, limit.window - 1)
    else:
        yield command("GET", keys.limit(limit.ident, "full"))
    yield command("ZCARD", keys.limit(limit.ident, "line"))


def _state(limit: LimitOfJob, used: object, waiting: int, now: int) -> LimitState:
    free_in: float | None = None
    slots: Sequence[bytes] = ()
    if limit.at_once:
        slots = [*_taken(items(used), now)]
        in_use = sum(whole(slot.partition(b":")[0]) for slot in slots)
        if in_use < limit.at_once and not waiting:
            free_in = 0.0
    elif limit.window:
        starts = [*_started(items(used), now - limit.per * 1e6)]
        in_use = sum(cost for cost, _ in starts)
        free_in = 0.0
        if in_use + waiting >= limit.window:
            age = (now - starts[0][1]) / 1e6 if starts else 0.0
            free_in = limit.per * (1 + waiting // limit.window) - age
    else:
        interval = limit.per / limit.rate * 1e6
        full = max(whole(used) - now, 0) if isinstance(used, bytes) else 0
        in_use = min(math.ceil(full / interval), limit.burst)
        free_in = max(full - (limit.burst - 1) * interval, 0) / 1e6
    return LimitState(
        *(limit.name, limit.key, limit.at_once, limit.rate, limit.window, limit.per, limit.burst),
        in_use=in_use,
        waiting=waiting,
        free_in=free_in,
        holders=[_holder(slot) for slot in slots[:MAX_HOLDERS]],
    )


def _taken(held: Sequence[object], now: int) -> Iterator[bytes]:
    """Yield the slots whose leases have not ended."""
    for slot, ends in zip(held[::2], held[1::2], strict=True):
        if isinstance(slot, bytes) and (score(ends) or 0) * 1000 > now:
            yield slot


def _started(entries: Sequence[object], since: float) -> Iterator[tuple[int, int]]:
    """Yield cost and microsecond of the starts in a window; a job that waits has no start."""
    for entry in entries:
        cost, start, *_ = entry.split(b":", 2) if isinstance(entry, bytes) else (b"", b"")
        if whole(start) > since:
            yield whole(cost), whole(start)


def _holder(slot: bytes) -> str:
    """Return the job of a slot, which is `<cost>:<jid>:<token>`; a token has no colon."""
    return name(slot.partition(b":")[2].rpartition(b":")[0])
