"""Totals, history and queues. [INSP-1] [INSP-2] [STAT-1] [STAT-2]"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from jobwire.errors import ConfigError
from jobwire.inspect.reading import ask, decode_json, items, name, number, problems, raw, whole
from jobwire.protocol import times
from jobwire.protocol.keys import Keys
from jobwire.protocol.times import utc_day
from jobwire.protocol.wire import Op, command

__all__ = [
    "Day",
    "QueueSummary",
    "Stats",
    "history",
    "latency",
    "members",
    "queue_summaries",
    "queue_summary",
    "stats",
]

MAX_DAYS = 1_825  # the counters of a day are kept for five years [STAT-2]


class QueueSummary(msgspec.Struct, frozen=True, gc=False):
    """One queue.

    Attributes:
        name: Bare name.
        size: Number of jobs.
        latency: Age in seconds of the job that runs next; 0 if the queue is empty. [INSP-2]
        paused: True if jobwire's workers fetch no jobs from it. [REL-9]
        problem: The problem with its key, or None.
        workers: Number of living processes that serve it and are not quiet, Sidekiq's included.
    """

    name: str
    size: int
    latency: float
    paused: bool
    problem: str | None = None
    workers: int = 0

    @property
    def abandoned(self) -> bool:
        """True if jobs wait in it and no process serves it."""
        return self.size > 0 and self.workers == 0


@dataclass(frozen=True, slots=True)
class Stats:
    """Totals and sizes of all queues, sets and processes.

    Attributes:
        processed: Executions since counting began, including failed ones. [STAT-1]
        failed: Executions that failed.
        enqueued: Jobs in all queues.
        scheduled: Jobs in the scheduled set.
        retries: Jobs in the retry set.
        dead: Jobs in the dead set.
        unreadable: Members of `jobwire:unreadable`. [EXEC-4]
        parked: Members of `jobwire:parked`. [X-PARK-3]
        parked_for: Seconds for which the first of these has been parked; 0 for none.
        handed_over: Times that a worker left a job to the workers of its class. [X-CLASS-7]
        processes: Registered processes; some of them may have just died.
        busy: Jobs in execution, as of the last heartbeats.
        default_latency: Seconds that the next job of queue `default` has waited. [INSP-2]
        queues: Queue name to size, the longest first.
        problems: Errors of keys, such as a key of another type.
    """

    processed: int
    failed: int
    enqueued: int
    scheduled: int
    retries: int
    dead: int
    unreadable: int
    parked: int
    parked_for: float
    handed_over: int
    processes: int
    busy: int
    default_latency: float
    queues: Mapping[str, int]
    problems: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Day:
    """The executions of one UTC day, such as `2026-11-20`. [STAT-2]"""

    date: str
    processed: int
    failed: int


def stats(keys: Keys, *, now: float) -> Op[Stats]:
    """Return the totals, in three round trips and one for each 100 queues and processes."""
    queues, queue_problems = yield from members(keys.queues)
    processes, process_problems = yield from members(keys.processes)
    commands = [
        command("GET", keys.stat("processed")),
        command("GET", keys.stat("failed")),
        *(command("ZCARD", key) for key in (keys.schedule, keys.retry, keys.dead)),
        *(command("ZCARD", key) for key in (keys.unreadable, keys.parked)),
        command("ZRANGE", keys.parked, 0, 0, "WITHSCORES"),
        command("GET", keys.handed_over),
        command("LINDEX", keys.queue("default"), -1),
        *(command("LLEN", raw(keys.queue(queue))) for queue in queues),
        *(command("HGET", raw(keys.process(identity)), "busy") for identity in processes),
    ]
    replies = yield from ask(commands)
    processed, failed, scheduled, retries, dead, unreadable, parked = map(whole, replies[:7])
    oldest, handed_over, next_job = replies[7:10]
    parked_at = number(oldest[1]) if len(items(oldest)) == 2 else None
    busy = replies[10 + len(queues) :]
    sizes = [whole(reply) for reply in replies[10 : 10 + len(queues)]]
    longest = sorted(zip(queues, sizes, strict=True), key=lambda pair: (-pair[1], pair[0]))
    return Stats(
        processed=processed,
        failed=failed,
        enqueued=sum(sizes),
        scheduled=scheduled,
        retries=retries,
        dead=dead,
        unreadable=unreadable,
        parked=parked,
        parked_for=0.0 if parked_at is None else max(now - parked_at, 0.0),
        handed_over=whole(handed_over),
        processes=len(processes),
        busy=sum(whole(reply) for reply in busy),
        default_latency=latency(next_job, now),
        queues=dict(longest),
        problems=(*queue_problems, *process_problems, *problems(commands, replies)),
    )


def history(keys: Keys, *, days: int, now: float) -> Op[list[Day]]:
    """Return the executions of the last days, today first; at most five years.

    Raises:
        ConfigError: The number of days is not possible.
    """
    if not 1 <= days <= MAX_DAYS:
        raise ConfigError(f"days: {days} is not between 1 and {MAX_DAYS}")
    today = datetime.fromisoformat(utc_day(now)).replace(tzinfo=UTC)
    dates = [f"{today - timedelta(back):%Y-%m-%d}" for back in range(days)]
    replies = yield from ask(
        [
            command("MGET", *(keys.stat(kind, date) for date in dates))
            for kind in ("processed", "failed")
        ]
    )
    processed, failed = ([whole(count) for count in items(reply)] for reply in replies)
    return [Day(*day) for day in zip(dates, processed, failed, strict=False)]


def queue_summaries(keys: Keys, *, now: float) -> Op[list[QueueSummary]]:
    """Return all registered queues by name, including empty ones. [INSP-1] [INSP-20]"""
    names, _ = yield from members(keys.queues)
    return (yield from _summaries(keys, sorted(names), now))


def queue_summary(keys: Keys, queue: str, *, now: float) -> Op[QueueSummary]:
    """Return one queue, registered or not."""
    (summary,) = yield from _summaries(keys, [queue], now)
    return summary


def members(key: str) -> Op[tuple[list[str], tuple[str, ...]]]:
    """Return the members of a set of names, and errors of its key. [INSP-1]"""
    seen: dict[bytes, None] = {}
    cursor: int | bytes = b"0"
    while True:
        step = command("SSCAN", key, cursor, "COUNT", 100)
        replies = yield from ask([step])
        page = items(replies[0])
        if not page:
            return [name(member) for member in seen], problems([step], replies)
        cursor, batch = page
        seen.update(dict.fromkeys(batch))
        if not whole(cursor):
            return [name(member) for member in seen], ()


def _serving(keys: Keys) -> Op[Counter[str]]:
    """Return the number of processes that serve each queue."""
    identities, _ = yield from members(keys.processes)
    replies = yield from ask(
        [command("HMGET", raw(keys.process(identity)), "info", "quiet") for identity in identities]
    )
    counts: Counter[str] = Counter()
    for reply in replies:
        info, quiet = items(reply) or (None, None)  # without info if it has just expired
        decoded = decode_json(info)
        if isinstance(decoded, dict) and quiet != b"true":
            counts.update({queue for queue in items(decoded.get("queues")) if type(queue) is str})
    return counts


def _summaries(keys: Keys, names: Sequence[str], now: float) -> Op[list[QueueSummary]]:
    workers = yield from _serving(keys)
    summaries = []
    commands = [
        step
        for queue in names
        for step in (
            command("LLEN", raw(keys.queue(queue))),
            command("LINDEX", raw(keys.queue(queue)), -1),
            command("SISMEMBER", keys.paused, raw(queue)),
        )
    ]
    replies = yield from ask(commands)
    for index, queue in enumerate(names):
        part = slice(3 * index, 3 * index + 3)
        size, tail, paused = replies[part]
        problem = next(iter(problems(commands[part], replies[part])), None)
        summaries.append(
            QueueSummary(
                *(queue, whole(size), latency(tail, now), paused == 1, problem, workers[queue])
            )
        )
    return summaries


def latency(tail: object, now: float) -> float:
    """Return the seconds that the job at the tail of a queue has waited. [INSP-2]"""
    if not isinstance(tail, bytes):
        return 0.0
    try:
        job = _read_times(tail)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return 0.0
    start = times.read(job.enqueued_at)
    start = times.read(job.created_at) if start is None else start
    return 0.0 if start is None else now - start


class _Times(msgspec.Struct, gc=False):
    """The fields of a payload that decide; to decode no other is three times as fast."""

    enqueued_at: Any = None
    created_at: Any = None


_read_times = msgspec.json.Decoder(_Times).decode
