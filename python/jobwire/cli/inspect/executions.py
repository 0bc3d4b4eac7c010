"""The table of `jobwire inspect metrics`: executions by class, over time and by duration."""

from __future__ import annotations

from jobwire.cli.inspect.views import bar
from jobwire.cli.table import Column, Styled, Table
from jobwire.inspect import Inspector
from jobwire.inspect.formats import clean, duration, iso
from jobwire.protocol.metrics import BOUNDS, Totals
from jobwire.protocol.times import Generation

__all__ = ["metrics"]

_BARS = "▁▂▃▄▅▆▇█"


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
        shown.append(Styled(bar(totals[index], most), "green"))
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
