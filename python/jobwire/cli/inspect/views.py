"""Views of `jobwire inspect`: each function makes a table from the inspector's data."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import asdict

from jobwire.cli.options import Place
from jobwire.cli.table import Cell, Column, Moment, Styled, Table
from jobwire.console.ops.results import StoredResult
from jobwire.errors import RedisTrouble
from jobwire.inspect import (
    Entry,
    Filter,
    InFlightSummary,
    Inspector,
    IterationState,
    MissingMembers,
    QueueSummary,
    SetName,
    Stats,
    UniqueLock,
)
from jobwire.inspect.formats import clean, cut, duration, iso, plain
from jobwire.inspect.shards import AskAll
from jobwire.ops import Operations
from jobwire.protocol.batches import BatchStatus
from jobwire.protocol.chains import steps
from jobwire.protocol.groups import Member
from jobwire.protocol.metrics import BOUNDS, Totals
from jobwire.protocol.progress import JobProgress
from jobwire.protocol.times import Generation
from jobwire.text import counted

__all__ = [
    "batches",
    "classes",
    "entry_record",
    "history",
    "holdings",
    "iterations",
    "jobs",
    "limits",
    "metrics",
    "one_batch",
    "one_job",
    "one_result",
    "parked",
    "processes",
    "queue",
    "queues",
    "shards",
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
_BARS = "▁▂▃▄▅▆▇█"
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
            Styled(_bar(day.processed, most), "green"),
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
            Styled(_bar(queue.size, most), "green"),
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


def one_job(
    entry: Entry,
    state: IterationState | None,
    now: float,
    progress: JobProgress | None = None,
    members: Sequence[Member] = (),
) -> Table:
    """Show all details of one job."""
    facts: list[tuple[str, Cell]] = [
        ("job id", clean(entry.jid or "-")),
        ("class", clean(entry.display_class or "-")),
        ("arguments", clean(_args(entry.display_args))),
        ("in", clean(entry.place)),
        ("queue", clean(entry.queue or "-")),
        ("tags", clean(", ".join(entry.tags)) or "-"),
        ("created", Moment(entry.created_at, now, both=True)),
        ("enqueued", Moment(entry.enqueued_at, now, both=True)),
    ]
    if entry.score is not None:
        facts.append(
            ("died" if entry.place == "dead" else "due", Moment(entry.score, now, both=True))
        )
    if entry.error_class or entry.failed_at is not None:
        facts += [
            # As in the lists and the log: 1 after the first failure, where the payload has 0.
            ("failures counted", "-" if entry.retry_count is None else str(entry.retry_count + 1)),
            ("failed first", Moment(entry.failed_at, now, both=True)),
            ("failed last", Moment(entry.retried_at, now, both=True)),
            ("error", Styled(clean(f"{entry.error_class}: {entry.error_message}"), "red")),
        ]
        facts += [("", clean(line)) for line in entry.error_backtrace or ()]
    if state:
        facts += [
            (
                "iteration",
                f"started {counted(state.starts, 'time')}, ran {duration(state.runtime)}",
            ),
            ("cursor", clean(_spell(state.cursor))),
        ]
        if state.cancelled_at is not None:
            facts.append(("cancelled", Moment(state.cancelled_at, now, both=True)))
    if progress is not None:
        facts += [
            ("progress", clean(progress.summary)),
            ("reported", Moment(progress.at, now, both=True)),
        ]
    chain = steps(entry.fields)
    for number, step in enumerate(chain, 1):
        here = "this job" if step.state == "here" else f"{step.state}, {step.jid}"
        facts.append(
            ("" if number > 1 else "chain", clean(f"{number}. {step.class_name} ({here})"))
        )
    for number, member in enumerate(members, 1):
        here = ", this job" if member.jid == entry.jid else ""
        shown = clean(f"{number}. {member.jid} ({member.state}{here})")
        facts.append(("" if number > 1 else "group", shown))
    if entry.problem:
        facts.append(("problem", Styled(clean(entry.problem), "red")))
    facts.append(("payload", clean(entry.text)))
    return Table("Job", [Column("what", style="dim"), Column("", fold=True)], facts, tuple)


def one_result(stored: StoredResult, now: float) -> Table:
    """Show the stored result of a job."""
    result = stored.result
    facts: list[tuple[str, Cell]] = [
        ("job id", clean(result.jid)),
        ("outcome", result.outcome),
        ("at", Moment(result.at, now, both=True)),
    ]
    if result.error_class:
        error = f"{result.error_class}: {result.error_message}"
        facts.append(("error", Styled(clean(error), "red")))
    if result.problem:
        facts.append(("no value", Styled(clean(result.problem), "red")))
    elif result.outcome == "done":
        facts.append(("value", clean(_spell(result.value))))
    kept = "-" if stored.expires_in is None else duration(stored.expires_in)
    facts.append(("kept for", kept))
    return Table("Result", [Column("what", style="dim"), Column("", fold=True)], facts, tuple)


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
    """Show batches."""
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
        read.batches,
        lambda status: (
            clean(status.id),
            clean(status.state),
            f"{status.open:,}",
            f"{status.failed:,}",
            f"{status.done:,}",
            iso(status.created_at),
            clean(status.description),
        ),
        plain,
        problems=() if read.complete else (more,),
        empty="none",
    )


def one_batch(status: BatchStatus, lost: MissingMembers | None, now: float) -> Table:
    """Show one batch, and the open members that were looked for and not found."""
    facts: list[tuple[str, Cell]] = [
        ("batch", clean(status.id)),
        ("description", clean(status.description) or "-"),
        ("state", clean(status.state)),
        ("created", Moment(status.created_at, now, both=True)),
        ("members", f"{status.total:,}"),
        ("open", f"{status.open:,}"),
        ("failed", f"{status.failed:,}"),
        ("done", f"{status.done:,}"),
        ("callbacks to come", ", ".join(status.waiting) or "none"),
        ("queue of callbacks", clean(status.queue)),
    ]
    problems: tuple[str, ...] = ()
    if lost is not None:
        facts.append(("open in no place", f"{len(lost.jids):,}"))
        facts += [("", clean(jid)) for jid in lost.jids]
        if not lost.complete:
            problems = ("not all was examined: use a higher --examine",)
    columns = [Column("what", style="dim"), Column("", fold=True)]
    return Table("Batch", columns, facts, tuple, problems=problems)


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
            clean(_spell(state.cursor)),
            "" if state.cancelled_at is None else Moment(state.cancelled_at, now),
        ),
        empty="no iterable job has started",
    )


def metrics(
    inspector: Inspector,
    class_name: str | None,
    *,
    minutes: int | None,
    hours: int | None,
    generation: Generation,
) -> Table:
    """Show executions by class, or of one class by duration."""
    exact = class_name is not None and not set("*?[") & set(class_name)
    if class_name is not None and exact:
        activity = inspector.job_activity(
            class_name, minutes=minutes, hours=hours, generation=generation
        )
    else:
        activity = inspector.activity(
            minutes=minutes, hours=hours, class_name=class_name or "*", generation=generation
        )
    count = round((activity.ends_at - activity.starts_at) / activity.step)
    last = activity.ends_at // activity.step * activity.step
    buckets = [last - back * activity.step for back in reversed(range(count))]
    by_time = sorted(activity.jobs.values(), key=lambda job: (-job.total.ms, job.class_name))
    executed = [job for job in by_time if job.series]

    def summary() -> list[str | Styled]:
        shown: list[str | Styled] = []
        if activity.marks:
            shown.append(Styled("\nDeployments", "bold cyan"))
        for mark in activity.marks:
            shown.append(Styled(f"\n  {iso(mark.at)}  {clean(mark.label)}", "magenta"))
        for job in by_time:
            totals = [sum(counts) for counts in zip(*job.histograms.values(), strict=True)]
            if any(totals):
                shown.append(Styled("\n\nDurations of executions that did not fail", "bold cyan"))
                shown += _durations(totals)
        return shown

    span = f"{hours} hours" if hours else f"{minutes or 60} minutes"
    return Table(
        f"Executions in the last {span}; the times are of those that did not fail",
        [
            Column("class", style="cyan"),
            Column("executed", "right"),
            Column("failed", "right"),
            Column("mean time", "right"),
            Column("total time", "right"),
            Column("over time", chart=True),
        ],
        executed,
        lambda job: (
            clean(job.class_name),
            f"{job.total.count:,}",
            Styled(f"{job.total.failed:,}", "red" if job.total.failed else ""),
            _mean(job.total),
            _total(job.total),
            _spark([job.series[at].count if at in job.series else 0 for at in buckets]),
        ),
        summary=summary,
        problems=activity.problems,
        empty="no job was executed",
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
        clean(_args(entry.display_args)),
        clean(entry.jid or "-"),
        clean(entry.queue or "-"),
    )


def _error(entry: Entry) -> Styled:
    if entry.problem:
        return Styled(clean(entry.problem), "red")
    retries = "" if entry.retry_count is None else f"#{entry.retry_count + 1} "
    return Styled(clean(f"{retries}{entry.error_class}: {entry.error_message}"), "red")


def _args(args: list[Any]) -> str:
    return ", ".join(cut(_spell(arg), 200) for arg in args)


def _spell(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _bar(value: int, most: int) -> str:
    return "█" * max(round(_BAR_WIDTH * value / most), 1) if value > 0 < most else ""


def _spark(values: list[int], most_columns: int = 36) -> str:
    """Return a small chart of values over time; if there are many, a column sums up several."""
    per_column = -(-len(values) // most_columns)
    starts = range(0, len(values), per_column)
    sums = [sum(values[start : start + per_column]) for start in starts]
    top = max(sums, default=0)
    return "".join(_BARS[min(value * 8 // (top + 1), 7)] if value else "·" for value in sums)


def _durations(totals: list[int]) -> list[str | Styled]:
    names = [f"< {_ms(bound)}" for bound in BOUNDS] + [f"≥ {_ms(BOUNDS[-1])}"]
    most = max(totals)
    used = [index for index, total in enumerate(totals) if total]
    shown: list[str | Styled] = []
    for index in range(used[0], used[-1] + 1):
        shown.append(f"\n  {names[index]:>10} {totals[index]:>8,} ")
        shown.append(Styled(_bar(totals[index], most), "green"))
    return shown


def _mean(totals: Totals) -> str:
    """Return the mean duration. Redis has whole milliseconds of each execution, rounded down."""
    if totals.failed >= totals.count:
        return "-"
    return _span(totals.average_ms) if totals.average_ms >= 1 else "< 1 ms"


def _total(totals: Totals) -> str:
    """Return the total duration."""
    succeeded = totals.count - totals.failed
    if succeeded <= 0:
        return "-"
    return _span(totals.ms) if totals.ms >= succeeded else f"< {_span(totals.ms + succeeded)}"


def _span(ms: float) -> str:
    return f"{ms:,.0f} ms" if ms < 1000 else duration(ms / 1000)


def _ms(value: int) -> str:
    return f"{value} ms" if value < 1000 else f"{value / 1000:g} s"
