"""Charts as SVG, without style attributes: classes of the style sheet give the colours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

__all__ = ["Bar", "Mark", "bars", "sparkline", "timeline"]

WIDTH, HEIGHT = 720, 180
LEFT, RIGHT, TOP, BOTTOM = 52, 8, 10, 24  # margins
MAX_LABELS = 8


@dataclass(frozen=True, slots=True)
class Bar:
    """The executions of one span of time.

    Attributes:
        label: Its time.
        total: Number of executions.
        failed: Number of these that failed.
    """

    label: str
    total: int
    failed: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A deployment in the span with this number."""

    bar: int
    label: str


def bars(data: Sequence[Bar], *, title: str, marks: Sequence[Mark] = ()) -> Markup:
    """Return a chart of executions, with the failed ones at the bottom of each bar.

    Args:
        data: The spans, oldest first.
        title: For people who do not see the chart.
        marks: Deployments.
    """
    top = nice(max((bar.total for bar in data), default=0))
    width = (WIDTH - LEFT - RIGHT) / max(len(data), 1)
    height = HEIGHT - TOP - BOTTOM
    parts = [_grid(top, height)]
    for index, bar in enumerate(data):
        x = LEFT + index * width
        full, bad = height * bar.total / top, height * min(bar.failed, bar.total) / top
        bar_title = f"{bar.label}: {bar.total:,} executions, {bar.failed:,} failed"
        parts.append(
            Markup(
                '<g><title>{}</title><rect class="done" {}/><rect class="failed" {}/></g>'
            ).format(
                bar_title,
                _box(x, TOP + height - full, width * 0.85, full - bad),
                _box(x, TOP + height - bad, width * 0.85, bad),
            )
        )
    every = max(1, -(-len(data) // MAX_LABELS))
    for index in range(0, len(data), every):
        parts.append(
            Markup('<text class="axis" x="{:.1f}" y="{}">{}</text>').format(
                LEFT + index * width, HEIGHT - 6, data[index].label
            )
        )
    for mark in marks:
        x = LEFT + (mark.bar + 0.42) * width
        parts.append(
            Markup(
                '<g><title>Deployment: {0}</title><line class="mark" x1="{1:.1f}" x2="{1:.1f}"'
                ' y1="{2}" y2="{3}"/></g>'
            ).format(mark.label, x, TOP, TOP + height)
        )
    return Markup(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>'
    ).format(WIDTH, HEIGHT, title, Markup("").join(parts))


def sparkline(values: Sequence[int], *, title: str) -> Markup:
    """Return a line of the size of a word."""
    return timeline(range(len(values)), values, gap=1, title=title)


def timeline(times: Sequence[float], values: Sequence[int], *, gap: float, title: str) -> Markup:
    """Return a line of the size of a word, from the first time to the last.

    Args:
        times: Time of each value, rising.
        values: The values.
        gap: Longest time between two values that are joined; a longer one interrupts the line.
        title: For people who do not see the line.
    """
    top = max([*values, 1])
    span = (times[-1] - times[0] if times else 0) or 1
    lines: list[list[str]] = []
    last = None
    for at, value in zip(times, values, strict=True):
        if last is None or at - last > gap:
            lines.append([])
        lines[-1].append(f"{100 * (at - times[0]) / span:.1f},{22 - 20 * value / top:.1f}")
        last = at
    # A line of one point is seen as a dot if it ends where it begins.
    drawn = (" ".join(line if line[1:] else line * 2) for line in lines)
    return Markup(
        '<svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img"'
        ' aria-label="{}">{}</svg>'
    ).format(title, Markup("").join(Markup('<polyline points="{}"/>').format(p) for p in drawn))


def nice(value: int) -> int:
    """Return the next number that is 1, 2 or 5 times a power of ten: the top of an axis."""
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= value:
                return factor * power
        power *= 10


def _grid(top: int, height: float) -> Markup:
    lines = []
    for share in (0.0, 0.5, 1.0):
        y = TOP + height * (1 - share)
        lines.append(
            Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
                '<text class="axis end" x="{}" y="{:.1f}">{}</text>'
            ).format(LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, _short(top * share))
        )
    return Markup("").join(lines)


def _box(x: float, y: float, width: float, height: float) -> Markup:
    return Markup('x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}"').format(
        x, y, max(width, 0.5), max(height, 0.0)
    )


def _short(value: float) -> str:
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:g}{unit}"
    return f"{value:g}"
