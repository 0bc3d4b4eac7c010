"""Totals, sizes and queues at a glance. [INSP-1] [INSP-2] [STAT-1] [STAT-2]"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from jobwire.errors import ConfigError
from jobwire.inspect.entry import QUEUE, entry
from jobwire.inspect.reading import ask, items, name, problems, raw, whole
from jobwire.protocol.keys import Keys
from jobwire.protocol.times import utc_day
from jobwire.protocol.wire import Op, command

__all__ = [
    "Day",
    "QueueSummary",
    "Stats",
    "history",
    "members",
    "queue_summaries",
    "queue_summary",
    "stats",
]

LONGEST_HISTORY = 1_825  # days: a day's counters are kept five years [STAT-2]


@dataclass(frozen=True, slots=True)
class QueueSummary:
    """One queue.

    Attributes:
        name: Bare name.
        size: Jobs in it.
        latency: Age in seconds of the job that runs next; 0 without one. [INSP-2]
        paused: Whether jobwire's workers are told to leave it alone. [REL-9]
        problem: What is wrong with its key, or None.
    """

    name: str
    size: int
    latency: float
    paused: bool
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Stats:
    """The state of everything, as numbers.

    Attributes:
        processed: Executions since counting began, failed ones included. [STAT-1]
        failed: Those of them that raised.
        enqueued: Jobs in all queues.
        scheduled: Jobs in the scheduled set.
        retries: Jobs in the retry set.
        dead: Jobs in the dead set.
        unreadable: Members of `jobwire:unreadable`. [EXEC-4]
        processes: Registered processes, which may include some that died just now.
        busy: Jobs in execution, as of the last heartbeats.
        default_latency: Seconds that the next job of queue `default` has waited. [INSP-2]
        queues: Queue name to size, the longest first.
        problems: Keys that are not what they should be.
    """

    processed: int
    failed: int
    enqueued: int
    scheduled: int
    retries: int
    dead: int
    unreadable: int
    processes: int
    busy: int
    default_latency: float
    queues: Mapping[str, int]
    problems: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Day:
    """The executions that were counted on one UTC day, `2026-11-20`. [STAT-2]"""

    date: str
    processed: int
    failed: int


def stats(keys: Keys, *, now: float) -> Op[Stats]:
    """Count everything, in three round trips and one for each 100 queues and processes."""
    queues, odd_queues = yield from members(keys.queues)
    processes, odd_processes = yield from members(keys.processes)
    commands = [
        command("GET", keys.stat("processed")),
        command("GET", keys.stat("failed")),
        *(command("ZCARD", key) for key in (keys.schedule, keys.retry, keys.dead)),
        command("ZCARD", keys.unreadable),
        command("LINDEX", keys.queue("default"), -1),
        *(command("LLEN", raw(keys.queue(each))) for each in queues),
        *(command("HGET", raw(keys.process(each)), "busy") for each in processes),
    ]
    replies = yield from ask(commands)
    processed, failed, scheduled, retries, dead, unreadable = map(whole, replies[:6])
    busy = replies[7 + len(queues) :]
    sizes = [whole(reply) for reply in replies[7 : 7 + len(queues)]]
    longest = sorted(zip(queues, sizes, strict=True), key=lambda pair: (-pair[1], pair[0]))
    return Stats(
        processed=processed,
        failed=failed,
        enqueued=sum(sizes),
        scheduled=scheduled,
        retries=retries,
        dead=dead,
        unreadable=unreadable,
        processes=len(processes),
        busy=sum(whole(reply) for reply in busy),
        default_latency=_latency(replies[6], now),
        queues=dict(longest),
        problems=(*odd_queues, *odd_processes, *problems(commands, replies)),
    )


def history(keys: Keys, *, days: int, now: float) -> Op[list[Day]]:
    """Return the executions of the last days, today first; at most five years.

    Raises:
        ConfigError: So many days are not kept.
    """
    if not 1 <= days <= LONGEST_HISTORY:
        raise ConfigError(f"days: {days} is not between 1 and {LONGEST_HISTORY}, as long as kept")
    today = datetime.fromisoformat(utc_day(now)).replace(tzinfo=UTC)
    dates = [f"{today - timedelta(back):%Y-%m-%d}" for back in range(days)]
    replies = yield from ask(
        [
            command("MGET", *(keys.stat(kind, date) for date in dates))
            for kind in ("processed", "failed")
        ]
    )
    processed, failed = ([whole(each) for each in items(reply)] for reply in replies)
    return [Day(*day) for day in zip(dates, processed, failed, strict=False)]


def queue_summaries(keys: Keys, *, now: float) -> Op[list[QueueSummary]]:
    """Return all registered queues by name; one without jobs is there all the same. [INSP-1]"""
    names, _ = yield from members(keys.queues)
    return (yield from _summaries(keys, sorted(names), now))


def queue_summary(keys: Keys, queue: str, *, now: float) -> Op[QueueSummary]:
    """Return one queue, registered or not."""
    (found,) = yield from _summaries(keys, [queue], now)
    return found


def members(key: str) -> Op[tuple[list[str], tuple[str, ...]]]:
    """Return the members of a set of names, and what is wrong with it. [INSP-1]"""
    found: dict[bytes, None] = {}
    cursor: int | bytes = b"0"
    while True:
        step = command("SSCAN", key, cursor, "COUNT", 100)
        replies = yield from ask([step])
        page = items(replies[0])
        if not page:
            return [name(each) for each in found], problems([step], replies)
        cursor, some = page
        found.update(dict.fromkeys(some))
        if not whole(cursor):
            return [name(each) for each in found], ()


def _summaries(keys: Keys, names: Sequence[str], now: float) -> Op[list[QueueSummary]]:
    summaries = []
    commands = [
        step
        for each in names
        for step in (
            command("LLEN", raw(keys.queue(each))),
            command("LINDEX", raw(keys.queue(each)), -1),
            command("SISMEMBER", keys.paused, raw(each)),
        )
    ]
    replies = yield from ask(commands)
    for index, each in enumerate(names):
        part = slice(3 * index, 3 * index + 3)
        size, tail, paused = replies[part]
        wrong = problems(commands[part], replies[part])
        summaries.append(
            QueueSummary(
                each, whole(size), _latency(tail, now), paused == 1, wrong[0] if wrong else None
            )
        )
    return summaries


def _latency(tail: object, now: float) -> float:
    return entry(tail, QUEUE).latency(now) if isinstance(tail, bytes) else 0.0
