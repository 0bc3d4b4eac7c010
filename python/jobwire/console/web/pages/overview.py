"""The first page: the jobs done, the jobs that wait, and the problems; the mark of a deployment.

The first page of several Redis shows the numbers of each, and their sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from jobwire.console.ops.alerts import alerts
from jobwire.console.web import charts
from jobwire.console.web.context import Page, Redirect, RequestContext
from jobwire.errors import ConfigError, RedisTrouble
from jobwire.inspect import Inspector
from jobwire.inspect.activity import Activity, percentile
from jobwire.inspect.fleet import Fleet
from jobwire.inspect.shards import total
from jobwire.protocol.metrics import WAITS

__all__ = ["activity_bars", "activity_marks", "activity_waits", "mark", "show", "show_all"]

PERIODS = {"5m": "5 minutes", "1h": "1 hour", "1d": "1 day", "90d": "90 days"}
MAX_QUEUES = 10  # queues
PATHS = {"retry": "retries"}  # of the places of alerts, where the path has another name
RATE_FRESH_S = 5.0
FRESH_S = {"5m": 1.0, "1h": 10.0, "1d": 60.0, "90d": 10.0}


def show(context: RequestContext) -> Page:
    """Show the totals, charts of a period, and the queues with the longest latency."""
    period = context.asked("period") if context.asked("period") in PERIODS else "5m"
    fleet = context.site.fleet()
    bars, waits, marks = context.site.shared(
        f"overview {period}", lambda: _chart(context, period), fresh=FRESH_S[period]
    )
    rate = context.site.shared("rate", lambda: _rate(context), fresh=RATE_FRESH_S)
    late = sorted(fleet.queues, key=lambda queue: (-queue.latency, -queue.size, queue.name))
    return Page(
        "overview.html",
        {
            "title": "Overview",
            "period": period,
            "periods": PERIODS,
            "bars": bars,
            "marks": marks,
            "rate": rate,
            "waits": waits,
            "waits_chart": charts.waits(
                waits, title=f"Waiting times in {PERIODS[period]}", marks=marks
            ),
            "chart": charts.bars(bars, title=f"Executions in {PERIODS[period]}", marks=marks),
            "late": [queue for queue in late if queue.size][:MAX_QUEUES],
            "alerts": [(each.text, PATHS.get(each.place, each.place)) for each in alerts(fleet)],
            "waiting": [
                ("Enqueued", "queues", fleet.enqueued),
                ("Retries", "retries", fleet.sets["retry"]),
                ("Scheduled", "scheduled", fleet.sets["scheduled"]),
                ("Dead", "dead", fleet.sets["dead"]),
            ],
            "longest": late[0].latency if late else 0.0,
            "default_latency": next(
                (queue.latency for queue in fleet.queues if queue.name == "default"), 0.0
            ),
        },
    )


MAX_ALL_QUEUES = 200  # queues


def show_all(
    context: RequestContext, read: Callable[[], Mapping[str, Fleet | RedisTrouble]]
) -> Page:
    """Show a line for each Redis, the sums, and all queues.

    Args:
        context: The request.
        read: Returns the numbers of each Redis by its name, or its trouble.
    """
    found = read()
    known = {name: each for name, each in found.items() if isinstance(each, Fleet)}
    sums = total([*known.values()])
    queues = sorted(sums.queues, key=lambda queue: (-queue.size, queue.name))
    return Page(
        "shards.html",
        {
            "title": "All Redis",
            "fleets": [(name, known.get(name)) for name in found],
            "sums": sums,
            "queues": queues[:MAX_ALL_QUEUES],
            "problems": [
                *((name, f"unreachable: {found[name]}") for name in found if name not in known),
                *((name, each.text) for name, fleet in known.items() for each in alerts(fleet)),
            ],
        },
    )


def activity_bars(activity: Activity) -> list[charts.Bar]:
    """Return the executions of all classes by bucket, oldest first."""
    found = []
    for at in _buckets(activity):
        buckets = [job.series[at] for job in activity.jobs.values() if at in job.series]
        found.append(
            charts.Bar(
                _clock(at),
                sum(bucket.count for bucket in buckets),
                sum(bucket.failed for bucket in buckets),
            )
        )
    return found


def activity_waits(activity: Activity) -> list[charts.Wait]:
    """Return the waiting times by bucket, oldest first; an empty list if none are kept."""
    if not activity.waits:
        return []
    found = []
    for at in _buckets(activity):
        counts = activity.waits.get(at, ())
        if not sum(counts):
            found.append(charts.Wait(_clock(at)))
            continue
        half, most = (percentile(counts, WAITS, share) or WAITS[-1] for share in (0.5, 0.95))
        found.append(charts.Wait(_clock(at), half, most))
    return found


def _buckets(activity: Activity) -> list[float]:
    """Return the starts of the buckets, oldest first."""
    last = activity.ends_at // activity.step * activity.step
    count = round((activity.ends_at - activity.starts_at) / activity.step)
    return [last - back * activity.step for back in reversed(range(count))]


def _clock(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%H:%M}"


def activity_marks(activity: Activity) -> list[charts.Mark]:
    """Return the deployments of the period."""
    last = activity.ends_at // activity.step * activity.step
    count = len(_buckets(activity))
    return [
        charts.Mark(count - 1 - round((last - mark.bucket) / activity.step), mark.label)
        for mark in activity.marks
    ]


def _rate(context: RequestContext) -> charts.Bar:
    """Return the executions of the last whole minute: processes add theirs every 10 s."""
    activity = _recent(context.operations.inspector, 2)
    return activity_bars(activity)[0]


def _recent(inspector: Inspector, minutes: int) -> Activity:
    activity = inspector.activity(minutes=minutes)
    if not activity.jobs:  # perhaps Sidekiq 7 writes here, in keys of its own
        activity = replace(inspector.activity(minutes=minutes, generation=7), waits=activity.waits)
    return activity


def _chart(
    context: RequestContext, period: str
) -> tuple[list[charts.Bar], list[charts.Wait], list[charts.Mark]]:
    inspector = context.operations.inspector
    if period == "90d":
        days = reversed(inspector.history(90))
        return [charts.Bar(day.date[5:], day.processed, day.failed) for day in days], [], []
    if period == "1d":
        activity = inspector.activity(hours=24)
    else:
        activity = _recent(inspector, 5 if period == "5m" else 60)
    return activity_bars(activity), activity_waits(activity), activity_marks(activity)


MAX_LABEL_CHARS = 100


def mark(context: RequestContext) -> Redirect:
    """Mark a deployment in the charts."""
    label = context.field("label").strip()
    if not label or len(label) > MAX_LABEL_CHARS:
        raise ConfigError(f"label: write 1 to {MAX_LABEL_CHARS} characters, such as a version")
    new = context.operations.mark_deploy(label)
    result = "marked" if new else "not marked: there was a mark within the last minute"
    return Redirect(context.back(), f"Deployment {label!r} {result}")
