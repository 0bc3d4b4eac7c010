"""Lists of `jobwire inspect`: each function makes a table from the inspector's data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import asdict

from jobwire.cli.options import Place
from jobwire.cli.table import Cell, Column, Moment, Styled, Table
from jobwire.errors import RedisTrouble
from jobwire.inspect import (
    Entry,
    Filter,
    InFlightSummary,
    Inspector,
    QueueSummary,
    SetName,
    Stats,
    UniqueLock,
)
from jobwire.inspect.formats import clean, cut, duration, iso, plain
from jobwire.inspect.shards import AskAll
from jobwire.ops import Operations
from jobwire.protocol.batches import BatchStatus
from jobwire.text import counted

__all__ = [
    "arguments",
    "bar",
    "batches",
    "classes",
    "entry_record",
    "history",
    "holdings",
    "iterations",
    "jobs",
    "limits",
    "parked",
    "processes",
    "queue",
    "queues",
    "shards",
    "spell",
    "stats",
    "unique",
    "works",
]

_TITLES: dict[SetName, str] = {
    "schedule": "Scheduled jobs",
    "retry": "Jobs to be retried",
    "dead": "Dead jobs",
    "unreadable": "Entries that are not jobs",
}
_PLACES = {"private": "fetched"}
_BAR_WIDTH = 30  # terminal cells


def stats(inspector: Inspector) -> Table:
    """Show totals and sizes."""
    totals = inspector.stats()
    numbers = [
        ("processed", f"{totals.processed:,}", ""),
        ("failed", f"{totals.failed:,}", "red" if totals.failed else ""),
        ("busy", f"{totals.busy:,}", ""),
        ("processes", f"{totals.processes:,}", "" if totals.processes else "yellow"),
        ("enqueued", f"{totals.enqueued:,}", ""),
        ("scheduled", f"{totals.scheduled:,}", ""),
        ("retries", f"{totals.retries:,}", "yellow" if totals.retries else ""),
        ("dead", f"{totals.dead:,}", "red" if totals.dead else ""),
        ("unreadable", f"{totals.unreadable:,}", "red" if totals.unreadable else ""),
        ("parked", f"{totals.parked:,}", "yellow" if totals.parked else ""),
        ("parked for", duration(totals.parked_for), ""),
        ("handed over", f"{totals.handed_over:,}", ""),
        ("latency of default", duration(totals.default_latency), ""),
    ]
    return Table(
        "Totals",
        [Column("what"), Column("number", "right")],
        numbers,
        lambda line: (line[0], Styled(line[1], line[2])),
        problems=totals.problems,
    )


def shards(places: Mapping[str, Place]) -> Table:
    """Show the totals and sizes of each shard, and their sums."""
    counts = (
        "processed",
        "failed",
        "busy",
        "processes",
        "enqueued",
        "scheduled",
        "retries",
        "dead",
    )
    sums = dict.fromkeys(counts, 0)
    rows: list[dict[str, Any]] = []
    problems: list[str] = []
    for name, totals in (
        AskAll[Stats]()
        .answers({name: partial(_stats_of, place) for name, place in places.items()})
        .items()
    ):
        if isinstance(totals, RedisTrouble):
            problems.append(f"shard {name}: {totals}")
            rows.append({"shard": name} | dict.fromkeys(counts, None))
            continue
        problems += [f"shard {name}: {problem}" for problem in totals.problems]
        numbers = {count: getattr(totals, count) for count in counts}
        rows.append({"shard": name} | numbers)
        sums = {count: sums[count] + number for count, number in numbers.items()}
    rows.append({"shard": "(all)"} | sums)
    return Table(
        "Shards",
        [Column("shard"), *(Column(count, "right") for count in counts)],
        rows,
        lambda row: [
            row["shard"],
            *("?" if row[count] is None else f"{row[count]:,}" for count in counts),
        ],
        problems=problems,
    )


def _stats_of(place: Place) -> Stats:
    with Inspector(place.url, namespace=place.namespace, timeout=2.0) as inspector:
        return inspector.stats()


def history(inspector: Inspector, days: int) -> Table:
    """Show executions by day."""
    history = inspector.history(days)
    most = max((day.processed for day in history), default=0)
    return Table(
        f"Executions of the last {days} days (UTC)",
        [
            Column("date"),
            Column("processed", "right"),
            Column("failed", "right"),
            Column("", chart=True),
        ],
        history,
        lambda day: (
            day.date,
            f"{day.processed:,}",
            Styled(f"{day.failed:,}", "red" if day.failed else ""),
            Styled(bar(day.processed, most), "green"),
        ),
    )


def queues(inspector: Inspector) -> Table:
    """Show all queues."""
    queues = inspector.queues()
    most = max((queue.size for queue in queues), default=0)
    return Table(
        "Queues",
        [
            Column("queue", style="cyan"),
            Column("size", "right"),
            Column("latency", "right"),
            Column("state"),
            Column("", chart=True),
        ],
        queues,
        lambda queue: (
            clean(queue.name),
            f"{queue.size:,}",
            duration(queue.latency),
            Styled(_queue_state(queue), "yellow"),
            Styled(bar(queue.size, most), "green"),
        ),
        problems=[queue.problem for queue in queues if queue.problem],
        empty="no queue is registered",
    )


def _queue_state(queue: QueueSummary) -> str:
    states = {"paused": queue.paused, "no worker": queue.abandoned}
    return ", ".join(state for state, holds in states.items() if holds)


def queue(inspector: Inspector, name: str, only: Filter, now: float) -> Table:
    """Show the jobs of a queue, newest first."""
    info = inspector.queue(name)
    state = ", paused" if info.paused else ""
    title = (
        f"Queue {clean(name)}: {counted(info.size, 'job')}, latency {duration(info.latency)}{state}"
    )
    return Table(
        title,
        [Column("enqueued", "right"), *_JOB],
        inspector.jobs(name, only=only),
        lambda entry: (Moment(entry.enqueued_at, now), *_job(entry)),
        entry_record,
        problems=[info.problem] if info.problem else [],
        empty="no job",
    )


def jobs(
    inspector: Inspector, name: SetName, only: Filter, now: float, pattern: str | None = None
) -> Table:
    """Show the entries of a set."""
    entries: Iterable[Entry]
    if pattern is None:
        entries = inspector.entries(name, only=only, rising=name in ("schedule", "retry"))
    else:
        scanned = inspector.scan(name, pattern)
        entries = (entry for entry in scanned if only.matches(entry, now=now))
    score = "died" if name in ("dead", "unreadable") else "due"
    failed = name in ("dead", "retry")
    columns = [Column(score, "right"), *_JOB, *([Column("error", grow=True)] if failed else [])]
    return Table(
        _TITLES[name],
        columns,
        entries,
        lambda entry: (
            Moment(entry.score, now),
            *_job(entry),
            *([_error(entry)] if failed else []),
        ),
        entry_record,
        empty="none",
    )


def parked(operations: Operations, only: Filter, reason: str | None, now: float) -> Table:
    """Show the parked jobs."""
    return Table(
        "Parked jobs",
        [Column("parked", "right"), Column("reason"), *_JOB],
        operations.parked(only=only, reason=reason),
        lambda job: (Moment(job.entry.score, now), clean(job.reason or "-"), *_job(job.entry)),
        lambda job: {**entry_record(job.entry), "reason": job.reason},
        empty="none",
    )


def processes(inspector: Inspector, now: float) -> Table:
    """Show the processes."""
    processes = inspector.processes()
    busy = sum(process.busy for process in processes)
    threads = sum(process.concurrency for process in processes)
    return Table(
        f"{counted(len(processes), 'process')}, {busy} of {counted(threads, 'thread')} busy",
        [
            Column("process", style="cyan", grow=True),
            Column("tag", spare=True),
            Column("version", spare=True),
            Column("busy", "right"),
            Column("queues", grow=True),
            Column("started", "right", spare=True),
            Column("state"),
            Column("beat", "right", spare=True),
            Column("memory", "right", spare=True),
            Column("round trip", "right", spare=True),
        ],
        processes,
        lambda process: (
            clean(process.identity),
            clean(process.tag),
            clean(process.version),
            f"{process.busy}/{process.concurrency}",
            clean(", ".join(process.queues)),
            Moment(process.started_at, now),
            Styled("quiet" if process.quiet else "running", "yellow" if process.quiet else ""),
            Moment(process.beat, now),
            f"{process.rss / 1024:,.0f} MiB" if process.rss else "-",
            f"{process.rtt_us / 1000:,.1f} ms" if process.rtt_us else "-",
        ),
        problems=[
            f"{process.identity}: {process.problem}" for process in processes if process.problem
        ],
        empty="no process is registered",
    )


def classes(inspector: Inspector) -> Table:
    """Show the announced classes."""
    return Table(
        "Announced classes",
        [Column("class", style="cyan"), Column("processes", "right"), Column("", grow=True)],
        inspector.classes().items(),
        lambda each: (clean(each[0]), f"{len(each[1]):,}", clean(", ".join(each[1]))),
        lambda each: {"class": each[0], "processes": each[1]},
        empty="no process has announced a class",
    )


def unique(inspector: Inspector, limit: int, examine: int, now: float) -> Table:
    """Show the locks of unique jobs."""
    locks = inspector.locks(limit=limit, examine=examine)
    more = "there may be more locks: use a higher --limit or --examine"
    return Table(
        "Locks of unique jobs",
        [
            Column("time left", "right"),
            Column("job id", style="cyan"),
            Column("class", grow=True),
            Column("queue"),
            Column("in"),
            Column("lock", fold=True),
        ],
        locks.locks,
        lambda lock: (
            "-" if lock.expires_in is None else duration(lock.expires_in),
            clean(lock.jid),
            clean(lock.job.display_class if lock.job else "-"),
            clean(lock.job.queue if lock.job else "-"),
            clean(_PLACES.get(lock.job.place, lock.job.place) if lock.job else "not found"),
            clean(lock.digest),
        ),
        lambda lock: _lock_record(lock, now),
        problems=() if locks.complete else (more,),
        empty="none",
    )


def _lock_record(lock: UniqueLock, now: float) -> dict[str, Any]:
    job = lock.job
    return {
        "digest": lock.digest,
        "jid": lock.jid,
        "expires_at": None if lock.expires_in is None else now + lock.expires_in,
        "class": job.display_class if job else None,
        "queue": job.queue if job else None,
        "place": _PLACES.get(job.place, job.place) if job else None,
    }


def batches(inspector: Inspector, limit: int, examine: int) -> Table:
    """Show batches, those inside another below it."""
    read = inspector.batches(limit=limit, examine=examine)
    more = "there may be more batches: use a higher --limit or --examine"
    return Table(
        "Batches",
        [
            Column("batch", style="cyan"),
            Column("state"),
            Column("open", "right"),
            Column("failed", "right"),
            Column("done", "right"),
            Column("created"),
            Column("description", grow=True),
        ],
        list(read.nested()),
        lambda row: _batch_cells(*row),
        lambda row: plain(row[1]),
        problems=() if read.complete else (more,),
        empty="none",
    )


def _batch_cells(depth: int, status: BatchStatus) -> Sequence[Cell]:
    return (
        f"{'  ' * depth}{clean(status.id)}",
        clean(status.state),
        f"{status.open:,}",
        f"{status.failed:,}",
        f"{status.done:,}",
        iso(status.created_at),
        clean(status.description),
    )


def limits(inspector: Inspector, limit: int) -> Table:
    """Show the limits of jobs."""
    return Table(
        "Limits",
        [
            Column("limit", style="cyan", grow=True),
            Column("key"),
            Column("allowed", "right"),
            Column("in use", "right"),
            Column("waiting", "right"),
            Column("free in", "right"),
        ],
        inspector.limits(limit=limit),
        lambda state: (
            clean(state.name),
            clean(state.key or "-"),
            f"{state.at_once:,}"
            if state.at_once
            else f"{state.window:,} in any {duration(state.per)}"
            if state.window
            else f"{state.rate:g} in {duration(state.per)}, {state.burst:,} together",
            f"{state.in_use:,}",
            f"{state.waiting:,}",
            "-" if state.free_in is None else duration(state.free_in),
        ),
        plain,
        empty="none",
    )


def works(inspector: Inspector, only: Filter, now: float) -> Table:
    """Show the jobs in execution."""
    works = [work for work in inspector.works() if only.matches(work.job, now=now)]
    told = any(work.progress for work in works)
    return Table(
        f"{counted(len(works), 'job')} in execution",
        [
            Column("started", "right"),
            *_JOB,
            *([Column("progress", grow=True)] if told else []),
            Column("process", grow=True, spare=True),
            Column("thread", spare=True),
        ],
        works,
        lambda work: (
            Moment(work.run_at, now),
            *_job(work.job)[:3],
            clean(work.queue),
            *([clean(work.progress.summary) if work.progress else "-"] if told else []),
            clean(work.identity),
            clean(work.thread),
        ),
        lambda work: {
            "identity": work.identity,
            "thread": work.thread,
            "queue": work.queue,
            "run_at": work.run_at,
            "job": entry_record(work.job),
            "progress": work.progress and asdict(work.progress),
        },
        empty="none",
    )


def holdings(inspector: Inspector, now: float) -> Table:
    """Show the jobs that processes of the reliable profile hold."""
    holders = inspector.holdings()
    recoveries = inspector.recoveries()
    pairs: list[tuple[InFlightSummary, tuple[str, Entry] | None]] = []
    for holder in holders:
        pairs += ((holder, job) for job in holder.jobs or (None,))

    return Table(
        f"Fetched and unfinished jobs: {sum(holder.size for holder in holders):,}; "
        f"recovered so far {recoveries.recovered:,}, "
        f"outcomes too late {recoveries.lost:,}, "
        f"put back and not yet done {len(recoveries.returned):,}",
        [
            Column("process", style="cyan", grow=True),
            Column("lease"),
            Column("jobs", "right"),
            Column("queue"),
            *_JOB[:3],
        ],
        pairs,
        lambda pair: (
            clean(pair[0].identity),
            "alive" if pair[0].alive else Styled("dead", "red"),
            f"{pair[0].size:,}",
            *((clean(pair[1][0]), *_job(pair[1][1])[:3]) if pair[1] else ("", "", "", "")),
        ),
        lambda pair: {
            "identity": pair[0].identity,
            "alive": pair[0].alive,
            "held": pair[0].size,
            "queue": pair[1][0] if pair[1] else None,
            "job": entry_record(pair[1][1]) if pair[1] else None,
        },
        empty="no process has unfinished jobs",
    )


def iterations(inspector: Inspector, jids: tuple[str, ...], now: float) -> Table:
    """Show the progress of iterable jobs."""
    states = inspector.iterations(jids) if jids else inspector.all_iterations()
    return Table(
        "Iterable jobs",
        [
            Column("job id", style="cyan"),
            Column("starts", "right"),
            Column("ran", "right"),
            Column("cursor", grow=True),
            Column("cancelled"),
        ],
        states,
        lambda state: (
            clean(state.jid),
            str(state.starts),
            duration(state.runtime),
            clean(spell(state.cursor)),
            "" if state.cancelled_at is None else Moment(state.cancelled_at, now),
        ),
        empty="no iterable job has started",
    )


def entry_record(entry: Entry) -> dict[str, Any]:
    """Return an entry for `--json`: its decoded fields and its text."""
    return {
        "jid": entry.jid,
        "class": entry.display_class or None,
        "args": entry.display_args,
        "place": entry.place,
        "queue": entry.queue or None,
        "score": entry.score,
        "created_at": entry.created_at,
        "enqueued_at": entry.enqueued_at,
        "failed_at": entry.failed_at,
        "retried_at": entry.retried_at,
        "retry_count": entry.retry_count,
        "error_class": entry.error_class or None,
        "error_message": entry.error_message or None,
        "tags": list(entry.tags),
        "problem": entry.problem,
        "payload": entry.text,
    }


_JOB = (
    Column("class", style="cyan"),
    Column("arguments", grow=True, spare=True),
    Column("job id"),
    Column("queue", spare=True),
)


def _job(entry: Entry) -> tuple[Cell, ...]:
    shown: Cell = clean(entry.display_class)
    if entry.problem:
        shown = Styled("unreadable", "red")
    return (
        shown or "?",
        clean(arguments(entry.display_args)),
        clean(entry.jid or "-"),
        clean(entry.queue or "-"),
    )


def _error(entry: Entry) -> Styled:
    if entry.problem:
        return Styled(clean(entry.problem), "red")
    retries = "" if entry.retry_count is None else f"#{entry.retry_count + 1} "
    return Styled(clean(f"{retries}{entry.error_class}: {entry.error_message}"), "red")


def arguments(args: list[Any]) -> str:
    """Return the arguments of a job in one line."""
    return ", ".join(cut(spell(arg), 200) for arg in args)


def spell(value: Any) -> str:
    """Return a value as JSON."""
    return json.dumps(value, ensure_ascii=False, default=str)


def bar(value: int, most: int) -> str:
    """Return a bar for a value; none for 0."""
    return "█" * max(round(_BAR_WIDTH * value / most), 1) if value > 0 < most else ""
