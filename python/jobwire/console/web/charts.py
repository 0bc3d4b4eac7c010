"""Charts as SVG, without style attributes: classes of the style sheet give the colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from jobwire.console.web.rendering import duration

__all__ = ["Bar", "Mark", "Wait", "bars", "sparkline", "timeline", "waits"]

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
class Wait:
    """Times that the jobs which started in one span of time had waited in their queues.

    Attributes:
        label: Its time.
        half_ms: Milliseconds that half of them had waited at most; 0 if none started.
        most_ms: Milliseconds that 95 of 100 had waited at most.
    """

    label: str
    half_ms: float = 0.0
    most_ms: float = 0.0


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
    columns = [
        _Column(
            bar.label,
            f"{bar.label}: {bar.total:,} executions, {bar.failed:,} failed",
            bar.total,
            min(bar.failed, bar.total),
        )
        for bar in data
    ]
    top = nice(max((bar.total for bar in data), default=0))
    return _chart(columns, top, _short, ("done", "failed"), title=title, marks=marks)


def waits(data: Sequence[Wait], *, title: str, marks: Sequence[Mark] = ()) -> Markup:
    """Return a chart of waiting times: that of half of the jobs is the lower part of each bar."""
    columns = [
        _Column(
            wait.label,
            f"{wait.label}: half of the jobs waited at most {duration(wait.half_ms / 1000)}, "
            f"95 % at most {duration(wait.most_ms / 1000)}"
            if wait.most_ms
            else f"{wait.label}: no job started",
            wait.most_ms,
            wait.half_ms,
        )
        for wait in data
    ]
    most = max((wait.most_ms for wait in data), default=0.0)
    top = next((length for length in _LENGTHS_MS if length >= most), most)
    return _chart(
        columns,
        top,
        lambda ms: duration(ms / 1000),
        ("most", "half"),
        title=title,
        marks=marks,
    )


class _Column(NamedTuple):
    label: str
    title: str
    full: float
    lower: float


# Each of them, and its half, is short to write.
_LENGTHS_MS = [
    count * unit
    for unit, counts in (
        (1, (2, 4, 10, 20, 40, 100, 200, 400)),
        (1_000, (1, 2, 4, 10, 20, 40)),
        (60_000, (1, 2, 4, 10, 20, 40)),
        (3_600_000, (1, 2, 4, 10, 20)),
        (86_400_000, (2, 4, 10, 20, 40)),
    )
    for count in counts
]


def _chart(
    data: Sequence[_Column],
    top: float,
    axis: Callable[[float], str],
    classes: tuple[str, str],
    *,
    title: str,
    marks: Sequence[Mark],
) -> Markup:
    width = (WIDTH - LEFT - RIGHT) / max(len(data), 1)
    height = HEIGHT - TOP - BOTTOM
    parts = [_grid(top, height, axis)]
    for index, column in enumerate(data):
        x = LEFT + index * width
        full, lower = height * column.full / top, height * column.lower / top
        parts.append(
            Markup('<g><title>{}</title><rect class="{}" {}/><rect class="{}" {}/></g>').format(
                column.title,
                classes[0],
                _box(x, TOP + height - full, width * 0.85, full - lower),
                classes[1],
                _box(x, TOP + height - lower, width * 0.85, lower),
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


def _grid(top: float, height: float, axis: Callable[[float], str]) -> Markup:
    lines = []
    for share in (0.0, 0.5, 1.0):
        y = TOP + height * (1 - share)
        lines.append(
            Markup(
                '<line class="grid" x1="{}" x2="{}" y1="{:.1f}" y2="{:.1f}"/>'
                '<text class="axis end" x="{}" y="{:.1f}">{}</text>'
            ).format(LEFT, WIDTH - RIGHT, y, y, LEFT - 6, y + 4, axis(top * share))
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
