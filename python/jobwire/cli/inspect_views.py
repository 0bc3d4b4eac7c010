"""What `jobwire inspect` shows: each view makes a sheet of what the inspector found."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from rich.text import Text

from jobwire.cli.inspect_output import Column, Sheet, ago, clean, cut, duration
from jobwire.inspect import Entry, Filter, InFlightSummary, Inspector, IterationState, SetName
from jobwire.protocol.metrics import BOUNDS
from jobwire.protocol.times import Generation

__all__ = [
    "entry_record",
    "history",
    "holdings",
    "iterations",
    "jobs",
    "metrics",
    "one_job",
    "processes",
    "queue",
    "queues",
    "stats",
    "works",
]

_TITLES: dict[SetName, str] = {
    "schedule": "Scheduled jobs",
    "retry": "Jobs to be retried",
    "dead": "Dead jobs",
    "unreadable": "What is no job",
}
_BARS = "▁▂▃▄▅▆▇█"
_WIDTH = 30  # of a bar


def stats(inspector: Inspector) -> Sheet:
    """Show totals and sizes."""
    found = inspector.stats()
    numbers = [
        ("processed", f"{found.processed:,}", ""),
        ("failed", f"{found.failed:,}", "red" if found.failed else ""),
        ("busy", f"{found.busy:,}", ""),
        ("processes", f"{found.processes:,}", "" if found.processes else "yellow"),
        ("enqueued", f"{found.enqueued:,}", ""),
        ("scheduled", f"{found.scheduled:,}", ""),
        ("retries", f"{found.retries:,}", "yellow" if found.retries else ""),
        ("dead", f"{found.dead:,}", "red" if found.dead else ""),
        ("unreadable", f"{found.unreadable:,}", "red" if found.unreadable else ""),
        ("latency of default", duration(found.default_latency), ""),
    ]
    return Sheet(
        "Totals",
        [Column("what"), Column("number", "right")],
        numbers,
        lambda each: (each[0], Text(each[1], style=each[2])),
        problems=found.problems,
    )


def history(inspector: Inspector, days: int) -> Sheet:
    """Show executions by day."""
    found = inspector.history(days)
    most = max((day.processed for day in found), default=0)
    return Sheet(
        f"Executions of the last {days} days (UTC)",
        [Column("date"), Column("processed", "right"), Column("failed", "right"), Column("")],
        found,
        lambda day: (
            day.date,
            f"{day.processed:,}",
            Text(f"{day.failed:,}", style="red" if day.failed else ""),
            Text(_bar(day.processed, most), style="green"),
        ),
    )


def queues(inspector: Inspector) -> Sheet:
    """Show all queues."""
    found = inspector.queues()
    most = max((each.size for each in found), default=0)
    return Sheet(
        "Queues",
        [
            Column("queue", style="cyan"),
            Column("size", "right"),
            Column("latency", "right"),
            Column("state"),
            Column(""),
        ],
        found,
        lambda each: (
            clean(each.name),
            f"{each.size:,}",
            duration(each.latency),
            Text("paused" if each.paused else "", style="yellow"),
            Text(_bar(each.size, most), style="green"),
        ),
        problems=[each.problem for each in found if each.problem],
        empty="no queue is registered",
    )


def queue(inspector: Inspector, name: str, only: Filter, now: float) -> Sheet:
    """Show the jobs of a queue, newest first."""
    head = inspector.queue(name)
    state = ", paused" if head.paused else ""
    title = f"Queue {clean(name)}: {head.size:,} jobs, latency {duration(head.latency)}{state}"
    return Sheet(
        title,
        [Column("enqueued", "right"), *_JOB],
        inspector.jobs(name, only=only),
        lambda each: (ago(each.enqueued_at, now), *_job(each)),
        entry_record,
        problems=[head.problem] if head.problem else [],
        empty="no job",
    )


def jobs(
    inspector: Inspector, name: SetName, only: Filter, now: float, pattern: str | None = None
) -> Sheet:
    """Show the entries of a set."""
    found: Iterable[Entry]
    if pattern is None:
        found = inspector.entries(name, only=only)
    else:
        found = (each for each in inspector.scan(name, pattern) if only.matches(each, now=now))
    when = "died" if name in ("dead", "unreadable") else "due"
    failed = name in ("dead", "retry")
    columns = [Column(when, "right"), *_JOB, *([Column("error", grow=True)] if failed else [])]
    return Sheet(
        _TITLES[name],
        columns,
        found,
        lambda each: (ago(each.score, now), *_job(each), *([_error(each)] if failed else [])),
        entry_record,
        empty="none",
    )


def one_job(entry: Entry, state: IterationState | None, now: float) -> Sheet:
    """Show all that is known of one job."""
    facts: list[tuple[str, str | Text]] = [
        ("job id", clean(entry.jid or "-")),
        ("class", clean(entry.display_class or "-")),
        ("arguments", clean(_args(entry.display_args))),
        ("in", clean(entry.place)),
        ("queue", clean(entry.queue or "-")),
        ("tags", clean(", ".join(entry.tags)) or "-"),
        ("created", _moment(entry.created_at, now)),
        ("enqueued", _moment(entry.enqueued_at, now)),
    ]
    if entry.score is not None:
        facts.append(("died" if entry.place == "dead" else "due", _moment(entry.score, now)))
    if entry.error_class or entry.failed_at is not None:
        facts += [
            ("retries counted", "-" if entry.retry_count is None else str(entry.retry_count)),
            ("failed first", _moment(entry.failed_at, now)),
            ("failed last", _moment(entry.retried_at, now)),
            ("error", Text(clean(f"{entry.error_class}: {entry.error_message}"), style="red")),
        ]
        facts += [("", clean(line)) for line in entry.error_backtrace or ()]
    if state:
        facts += [
            ("iteration", f"started {state.starts} times, ran {duration(state.runtime)}"),
            ("cursor", clean(_spell(state.cursor))),
        ]
        if state.cancelled_at is not None:
            facts.append(("cancelled", _moment(state.cancelled_at, now)))
    if entry.problem:
        facts.append(("problem", Text(clean(entry.problem), style="red")))
    facts.append(("payload", clean(entry.text)))
    return Sheet("Job", [Column("what", style="dim"), Column("", fold=True)], facts, tuple)


def processes(inspector: Inspector, now: float) -> Sheet:
    """Show the processes."""
    found = inspector.processes()
    busy, threads = sum(each.busy for each in found), sum(each.concurrency for each in found)
    return Sheet(
        f"{len(found)} processes, {busy} of {threads} threads busy",
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
        found,
        lambda each: (
            clean(each.identity),
            clean(each.tag),
            clean(each.version),
            f"{each.busy}/{each.concurrency}",
            clean(", ".join(each.queues)),
            ago(each.started_at, now),
            Text("quiet" if each.quiet else "running", style="yellow" if each.quiet else ""),
            ago(each.beat, now),
            f"{each.rss / 1024:,.0f} MiB" if each.rss else "-",
            f"{each.rtt_us / 1000:,.1f} ms" if each.rtt_us else "-",
        ),
        problems=[f"{each.identity}: {each.problem}" for each in found if each.problem],
        empty="no process is registered",
    )


def works(inspector: Inspector, only: Filter, now: float) -> Sheet:
    """Show the jobs in execution."""
    found = [each for each in inspector.works() if only.matches(each.job, now=now)]
    return Sheet(
        f"{len(found)} jobs in execution",
        [
            Column("for", "right"),
            *_JOB,
            Column("process", grow=True, spare=True),
            Column("thread", spare=True),
        ],
        found,
        lambda each: (
            "-" if each.run_at is None else duration(now - each.run_at),
            *_job(each.job)[:3],
            clean(each.queue),
            clean(each.identity),
            clean(each.thread),
        ),
        lambda each: {
            "identity": each.identity,
            "thread": each.thread,
            "queue": each.queue,
            "run_at": each.run_at,
            "job": entry_record(each.job),
        },
        empty="none",
    )


def holdings(inspector: Inspector, now: float) -> Sheet:
    """Show what processes of the reliable profile hold."""
    found = inspector.holdings()
    saved = inspector.recoveries()
    pairs: list[tuple[InFlightSummary, tuple[str, Entry] | None]] = []
    for each in found:
        pairs += ((each, job) for job in each.jobs or (None,))

    return Sheet(
        f"Jobs held: {sum(each.size for each in found):,}; recovered so far {saved.recovered:,}, "
        f"outcomes too late {saved.lost:,}, put back and not yet done {len(saved.returned):,}",
        [
            Column("process", style="cyan", grow=True),
            Column("lease"),
            Column("held", "right"),
            Column("queue"),
            *_JOB[:3],
        ],
        pairs,
        lambda pair: (
            clean(pair[0].identity),
            Text("alive") if pair[0].alive else Text("dead", style="red"),
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
        empty="no process holds any",
    )


def iterations(inspector: Inspector, jids: tuple[str, ...], now: float) -> Sheet:
    """Show how far iterable jobs are."""
    found = inspector.iterations(jids) if jids else inspector.all_iterations()
    return Sheet(
        "Iterable jobs",
        [
            Column("job id", style="cyan"),
            Column("starts", "right"),
            Column("ran", "right"),
            Column("cursor", grow=True),
            Column("cancelled"),
        ],
        found,
        lambda each: (
            clean(each.jid),
            str(each.starts),
            duration(each.runtime),
            clean(_spell(each.cursor)),
            "" if each.cancelled_at is None else ago(each.cancelled_at, now),
        ),
        empty="none has begun",
    )


def metrics(
    inspector: Inspector,
    class_name: str | None,
    *,
    minutes: int | None,
    hours: int | None,
    generation: Generation,
) -> Sheet:
    """Show executions by class, or of one class by duration."""
    exact = class_name is not None and not set("*?[") & set(class_name)
    if class_name is not None and exact:
        found = inspector.job_activity(
            class_name, minutes=minutes, hours=hours, generation=generation
        )
    else:
        found = inspector.activity(
            minutes=minutes, hours=hours, class_name=class_name or "*", generation=generation
        )
    count = round((found.ends_at - found.starts_at) / found.step)
    last = found.ends_at // found.step * found.step
    buckets = [last - back * found.step for back in reversed(range(count))]
    every = sorted(found.jobs.values(), key=lambda job: (-job.total.ms, job.class_name))
    busiest = [job for job in every if job.series]

    def summary() -> Text:
        shown = Text()
        for mark in found.marks:
            shown.append(f"\n  {_clock(mark.at)}  {clean(mark.label)}", style="magenta")
        if found.marks:
            shown = Text.assemble(("\nDeployments (UTC)", "bold cyan"), shown)
        for job in every:
            totals = [sum(counts) for counts in zip(*job.histograms.values(), strict=True)]
            if any(totals):
                shown.append("\n\nDurations of those that did not fail", style="bold cyan")
                shown.append(_durations(totals))
        return shown

    span = f"{hours} hours" if hours else f"{minutes or 60} minutes"
    return Sheet(
        f"Executions in the last {span}",
        [
            Column("class", style="cyan"),
            Column("executed", "right"),
            Column("failed", "right"),
            Column("average", "right"),
            Column("in all", "right"),
            Column("over time"),
        ],
        busiest,
        lambda job: (
            clean(job.class_name),
            f"{job.total.count:,}",
            Text(f"{job.total.failed:,}", style="red" if job.total.failed else ""),
            f"{job.total.average_ms:,.0f} ms",
            duration(job.total.ms / 1000),
            _spark([job.series[at].count if at in job.series else 0 for at in buckets]),
        ),
        summary=summary,
        problems=found.problems,
        empty="nothing was executed",
    )


def entry_record(entry: Entry) -> dict[str, Any]:
    """Return an entry for `--json`: what was decoded, and the text."""
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


def _job(entry: Entry) -> tuple[str | Text, ...]:
    shown: str | Text = clean(entry.display_class)
    if entry.problem:
        shown = Text("unreadable", style="red")
    return (
        shown or "?",
        clean(_args(entry.display_args)),
        clean(entry.jid or "-"),
        clean(entry.queue or "-"),
    )


def _error(entry: Entry) -> Text:
    if entry.problem:
        return Text(clean(entry.problem), style="red")
    retries = "" if entry.retry_count is None else f"#{entry.retry_count + 1} "
    return Text(clean(f"{retries}{entry.error_class}: {entry.error_message}"), style="red")


def _args(args: list[Any]) -> str:
    return ", ".join(cut(_spell(each), 200) for each in args)


def _spell(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _moment(at: float | None, now: float) -> str:
    return "-" if at is None else f"{_clock(at)} UTC, {ago(at, now)}"


def _clock(at: float) -> str:
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"


def _bar(value: int, most: int) -> str:
    return "█" * max(round(_WIDTH * value / most), 1) if value > 0 < most else ""


def _spark(values: list[int], most_columns: int = 36) -> str:
    """Return a small picture of values over time, several in one sign if there are many."""
    each = -(-len(values) // most_columns)
    sums = [sum(values[start : start + each]) for start in range(0, len(values), each)]
    top = max(sums, default=0)
    return "".join(_BARS[min(value * 8 // (top + 1), 7)] if value else "·" for value in sums)


def _durations(totals: list[int]) -> Text:
    names = [f"< {_ms(bound)}" for bound in BOUNDS] + [f"≥ {_ms(BOUNDS[-1])}"]
    most = max(totals)
    used = [index for index, total in enumerate(totals) if total]
    shown = Text()
    for index in range(used[0], used[-1] + 1):
        shown.append(f"\n  {names[index]:>10} {totals[index]:>8,} ")
        shown.append(_bar(totals[index], most), style="green")
    return shown


def _ms(value: int) -> str:
    return f"{value} ms" if value < 1000 else f"{value / 1000:g} s"
