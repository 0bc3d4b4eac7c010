"""The pages of job classes: counts, failures, times and percentiles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jobwire.console.web import charts
from jobwire.console.web.context import Page, RequestContext
from jobwire.console.web.pages.overview import activity_bars, activity_marks
from jobwire.inspect.activity import Activity, JobActivity, percentile
from jobwire.protocol.metrics import BOUNDS

__all__ = ["show", "show_all"]

PERIODS: dict[str, dict[str, int]] = {
    "15m": {"minutes": 15},
    "1h": {"minutes": 60},
    "4h": {"minutes": 240},
    "8h": {"minutes": 480},
    "1d": {"hours": 24},
    "3d": {"hours": 72},
}
# Of all classes, hundreds of hashes with three fields of each class would take seconds to read.
COARSE = {**PERIODS, "4h": {"hours": 4}, "8h": {"hours": 8}}
FRESH_S = 15.0
PER_PAGE = 100
ORDERS: dict[str, Callable[[JobActivity], Any]] = {
    "executions": lambda job: (-job.total.count, job.class_name),
    "failed": lambda job: (-job.total.failed, job.class_name),
    "time": lambda job: (-job.total.ms, job.class_name),
    "mean": lambda job: (-job.total.average_ms, job.class_name),
    "name": lambda job: job.class_name,
}


def show_all(context: RequestContext) -> Page:
    """Show the classes of a period."""
    period = context.asked("period") if context.asked("period") in PERIODS else "15m"
    order = context.asked("sort") if context.asked("sort") in ORDERS else "executions"
    wanted = context.asked("name").casefold()
    inspector = context.operations.inspector
    activity = context.site.shared(
        f"classes {period}",
        lambda: _either(lambda **how: inspector.activity(**how), COARSE[period], period),
        fresh=FRESH_S,
    )
    jobs = [job for job in activity.jobs.values() if wanted in job.class_name.casefold()]
    jobs.sort(key=ORDERS[order])
    start = context.number("from", 1, most=10**6) - 1
    return Page(
        "classes.html",
        {
            "title": "Classes",
            "period": period,
            "periods": [*PERIODS],
            "order": order,
            "orders": [*ORDERS],
            "wanted": context.asked("name"),
            "jobs": [(job, _line(activity, job)) for job in jobs[start : start + PER_PAGE]],
            "start": start,
            "step": PER_PAGE,
            "total": len(jobs),
            "marks": activity.marks,
        },
    )


def show(context: RequestContext) -> Page:
    """Show one class, with the percentiles of the period."""
    name = context.name()
    period = context.asked("period") if context.asked("period") in PERIODS else "1h"
    inspector = context.operations.inspector
    activity = context.site.shared(
        f"class {period} {name}",
        lambda: _either(lambda **how: inspector.job_activity(name, **how), PERIODS[period], period),
        fresh=1.0,
    )
    job = activity.jobs[name]
    counts = [sum(column) for column in zip(*job.histograms.values(), strict=True)]
    bars, marks = activity_bars(activity), activity_marks(activity)
    return Page(
        "class.html",
        {
            "title": name,
            "period": period,
            "periods": [*PERIODS],
            "job": job,
            "chart": charts.bars(bars, title=f"Executions of {name}", marks=marks),
            "marks": activity.marks,
            "percentiles": [
                (share, percentile(counts, BOUNDS, share)) for share in (0.5, 0.9, 0.95, 0.99)
            ],
            "times": [*zip(_spans(), counts, strict=False)],
        },
    )


def _either(read: Callable[..., Activity], how: Mapping[str, int], period: str) -> Activity:
    """Return the activity that Sidekiq 8 and jobwire write, otherwise that of Sidekiq 7."""
    activity = read(**how)
    older = PERIODS[period]
    if "hours" in older or any(job.total.count for job in activity.jobs.values()):
        return activity
    found = read(**older, generation=7)
    return found if any(job.total.count for job in found.jobs.values()) else activity


def _line(activity: Activity, job: JobActivity) -> str:
    last = activity.ends_at // activity.step * activity.step
    count = round((last - activity.starts_at) / activity.step)
    values = [
        job.series[at].count if at in job.series else 0
        for at in (last - back * activity.step for back in reversed(range(count)))
    ]
    return charts.sparkline(values, title=f"Executions of {job.class_name} over time")


def _spans() -> list[str]:
    lows = (0, *BOUNDS)
    return [f"{low:,} to {high:,} ms" for low, high in zip(lows, BOUNDS, strict=False)] + [
        f"more than {BOUNDS[-1]:,} ms"
    ]
