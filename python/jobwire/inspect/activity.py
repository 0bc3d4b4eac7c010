"""Executions by class over time, and deployments. [MET-1] to [MET-5] [MET-13]"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from fnmatch import fnmatchcase

from jobwire.errors import ConfigError
from jobwire.inspect.reading import ask, items, problems, text
from jobwire.protocol.keys import Keys
from jobwire.protocol.metrics import (
    MINUTE_S,
    TEN_MINUTES_S,
    Totals,
    histogram_key,
    marks_key,
    minute_key,
    read_histogram,
    read_rollup,
    read_waits,
    tens_key,
    waits_key,
)
from jobwire.protocol.times import Generation
from jobwire.protocol.wire import Command, Op, command

__all__ = [
    "Activity",
    "JobActivity",
    "Mark",
    "activity",
    "deployments",
    "job_activity",
    "percentile",
]

MAX_MINUTES, MAX_HOURS = 480, 72  # times for which Redis keeps them [MET-3]
DAY_S = 86_400


@dataclass(frozen=True, slots=True)
class Mark:
    """A deployment at epoch second `at`, in the bucket that begins at `bucket`. [MET-5]"""

    at: float
    label: str
    bucket: float


@dataclass(frozen=True, slots=True)
class JobActivity:
    """The executions of one class; the name of a bucket is the epoch second of its start.

    Attributes:
        class_name: `wrapped` of the payload if it is there, otherwise `class`.
        total: All executions.
        series: Bucket to its executions, without empty buckets.
        histograms: Minute to counts by duration (`jobwire.protocol.metrics.BOUNDS`); only for one
            class, by minutes.
    """

    class_name: str
    total: Totals
    series: Mapping[float, Totals]
    histograms: Mapping[float, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Activity:
    """The executions in a period.

    Attributes:
        starts_at: Epoch second of its start.
        ends_at: Epoch second of its end.
        step: Seconds of a bucket, 60 or 600.
        jobs: Class to its executions.
        marks: Deployments in the period, oldest first.
        problems: Errors of keys, such as a key of another type.
        waits: Bucket to counts of the started jobs of all classes by the time that they had waited
            in their queues (`jobwire.protocol.metrics.WAITS`); written by workers of jobwire, and
            read with the executions of all classes.
    """

    starts_at: float
    ends_at: float
    step: int
    jobs: Mapping[str, JobActivity]
    marks: Sequence[Mark]
    problems: Sequence[str] = ()
    waits: Mapping[float, Sequence[int]] = field(default_factory=dict)


def activity(
    keys: Keys,
    *,
    now: float,
    minutes: int | None = None,
    hours: int | None = None,
    class_name: str = "*",
    generation: Generation = 8,
) -> Op[Activity]:
    """Return the executions of all classes that match, up to `now`. [MET-1]

    Args:
        keys: Key names.
        now: Epoch seconds.
        minutes: Length of the period in minutes, 1 to 480; default: 60.
        hours: Length of the period in hours, 1 to 72, with buckets of ten minutes.
        class_name: Pattern with `*`, `?` and `[...]`, as for file names.
        generation: 7 reads the counters of Sidekiq 7, which has no hours. [MET-4]

    Raises:
        ConfigError: The length of the period is not possible.
    """
    step, buckets = _buckets(now, minutes, hours, generation)
    commands = [command("HGETALL", _rollup(keys, at, step, generation)) for at in buckets]
    commands += [command("GETRANGE", waits_key(keys, at, step), 0, 127) for at in buckets]
    replies = yield from ask(commands)
    series: dict[str, dict[float, Totals]] = {}
    waits = {
        at: read_waits(reply)
        for at, reply in zip(buckets, replies[len(buckets) :], strict=True)
        if isinstance(reply, bytes) and reply
    }
    for at, reply in zip(buckets, replies, strict=False):
        flat = items(reply)
        for name, totals in read_rollup(dict(zip(flat[::2], flat[1::2], strict=True))).items():
            if class_name == "*" or fnmatchcase(name, class_name):
                series.setdefault(name, {})[at] = totals
    jobs = {name: _job(name, series[name], {}) for name in sorted(series)}
    found = yield from _activity(keys, now, step, len(buckets), jobs, problems(commands, replies))
    return replace(found, waits=waits)


def job_activity(
    keys: Keys,
    class_name: str,
    *,
    now: float,
    minutes: int | None = None,
    hours: int | None = None,
    generation: Generation = 8,
) -> Op[Activity]:
    """Return the executions of one class, by minutes with histograms; see `activity`. [MET-2]"""
    step, buckets = _buckets(now, minutes, hours, generation)
    names = [f"{class_name}|{counter}" for counter in ("p", "f", "ms")]
    commands: list[Command] = [
        command("HMGET", _rollup(keys, at, step, generation), *names) for at in buckets
    ]
    if step == MINUTE_S:
        commands += [
            command("GETRANGE", histogram_key(keys, class_name, at, generation), 0, 51)
            for at in buckets
        ]
    replies = yield from ask(commands)
    series: dict[float, Totals] = {}
    for at, reply in zip(buckets, replies, strict=False):
        values = zip(names, items(reply), strict=False)
        fields = {name.encode(): value for name, value in values if value is not None}
        series.update((at, totals) for totals in read_rollup(fields).values())
    histograms = {
        at: read_histogram(reply if isinstance(reply, bytes) else None)
        for at, reply in zip(buckets, replies[len(buckets) :], strict=False)
    }
    jobs = {class_name: _job(class_name, series, histograms)}
    return (yield from _activity(keys, now, step, len(buckets), jobs, problems(commands, replies)))


def _buckets(
    now: float, minutes: int | None, hours: int | None, generation: Generation
) -> tuple[int, list[float]]:
    """Return the length of the buckets in seconds, and their start times, newest first."""
    if hours is None:
        count = 60 if minutes is None else minutes
        if not 1 <= count <= MAX_MINUTES:
            raise ConfigError(f"minutes: {count} is not between 1 and {MAX_MINUTES}; try hours")
        step = MINUTE_S
    else:
        if minutes is not None:
            raise ConfigError("minutes and hours cannot be combined")
        if generation == 7:
            raise ConfigError("hours: Sidekiq 7 has only minutes, of the last 8 hours")
        if not 1 <= hours <= MAX_HOURS:
            raise ConfigError(f"hours: {hours} is not between 1 and {MAX_HOURS}")
        step, count = TEN_MINUTES_S, hours * 6
    last = now // step * step
    return step, [last - back * step for back in range(count)]


def _rollup(keys: Keys, at: float, step: int, generation: Generation) -> str:
    return tens_key(keys, at) if step == TEN_MINUTES_S else minute_key(keys, at, generation)


def _job(
    name: str, series: Mapping[float, Totals], histograms: Mapping[float, Sequence[int]]
) -> JobActivity:
    buckets = series.values()
    total = Totals(
        sum(bucket.count for bucket in buckets),
        sum(bucket.failed for bucket in buckets),
        sum(bucket.ms for bucket in buckets),
    )
    return JobActivity(name, total, series, histograms)


def _activity(
    keys: Keys,
    now: float,
    step: int,
    count: int,
    jobs: Mapping[str, JobActivity],
    job_problems: tuple[str, ...],
) -> Op[Activity]:
    """Return the activity, with the deployments in its period."""
    start = now - count * step
    marks, mark_problems = yield from deployments(keys, start=start, now=now, step=step)
    return Activity(start, now, step, jobs, marks, (*job_problems, *mark_problems))


def deployments(
    keys: Keys, *, start: float, now: float, step: int = MINUTE_S
) -> Op[tuple[list[Mark], tuple[str, ...]]]:
    """Return the deployments of a period, oldest first, and errors of keys, in one round trip.

    Args:
        keys: Key names.
        start: Epoch second of the start of the period.
        now: Epoch second of its end.
        step: Seconds of the buckets of the marks.
    """
    days = range(int(start // DAY_S), int(now // DAY_S) + 1)
    commands = [command("HGETALL", marks_key(keys, day * DAY_S)) for day in days]
    replies = yield from ask(commands)
    marks = []
    for reply in replies:
        flat = items(reply)
        for stamp, label in zip(flat[::2], flat[1::2], strict=True):
            at = _instant(text(stamp))
            if at is not None and start <= at <= now:
                marks.append(Mark(at, text(label), at // step * step))
    marks.sort(key=lambda mark: (mark.at, mark.label))
    return marks, problems(commands, replies)


def percentile(counts: Sequence[int], bounds: Sequence[int], share: float) -> float | None:
    """Return about how many milliseconds a share of the counted ones took at most.

    The counters know spans of time only, so within a span they count as evenly spread. None if
    there are none, or if it is in the last span, which has no end.

    Args:
        counts: One more than there are bounds.
        bounds: `jobwire.protocol.metrics.BOUNDS` or `WAITS`, in milliseconds.
        share: 0.5 for half.
    """
    left = share * sum(counts)
    low = 0
    for count, high in zip(counts, bounds, strict=False):
        if count and left <= count:
            return low + (high - low) * left / count
        left -= count
        low = high
    return None


def _instant(stamp: str) -> float | None:
    try:
        moment = datetime.fromisoformat(stamp)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
