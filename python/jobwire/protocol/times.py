"""Times on the wire: writers use one of two generations, readers accept both. [GEN-1] to [GEN-5]"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Literal, TypeAlias, TypeGuard

from jobwire.errors import InvalidJob

__all__ = [
    "Generation",
    "When",
    "absolute",
    "detect",
    "epoch",
    "instant",
    "read",
    "stamp",
    "utc_day",
]

Generation = Literal[7, 8]
"""7 writes seconds as a float (Sidekiq up to 7), 8 milliseconds as an integer (Sidekiq 8)."""

When: TypeAlias = float | timedelta | datetime
"""Seconds or an epoch time (see `instant`), a timedelta from now, or an aware datetime."""

# Sidekiq's own rule: a number below this is seconds from now, any other an epoch time. [SCHED-2]
RELATIVE_BELOW = 1_000_000_000
# As seconds this is the year 5138, as milliseconds 1973: no real time falls on the wrong side.
MILLISECONDS_FROM = 100_000_000_000

_NUMBER = re.compile(r"[0-9]+")


def stamp(now: float, generation: Generation) -> float | int:
    """Return `now` in the form of `created_at` and the other stamps of a payload.

    Other times on the wire do not depend on the generation. [GEN-1] [GEN-2] [GEN-4] [GEN-9]
    """
    return float(now) if generation == 7 else int(now * 1000)


def read(value: object) -> float | None:
    """Return a time of a payload in seconds; None if the value is not a time. [GEN-3] [GEN-6]

    The size of the number tells seconds from milliseconds, so no reader needs the generation.
    [GEN-8]
    """
    if type(value) is not int and not _is_number(value):  # nearly all are: without a call
        return None
    try:
        return value / 1000 if abs(value) >= MILLISECONDS_FROM else float(value)
    except OverflowError:
        return None


def instant(when: When, *, now: float, field: str = "at") -> float:
    """Return the epoch second that `when` means; small numbers are relative to now. [SCHED-2]

    Args:
        when: A number below 1,000,000,000 is seconds from now, any other an epoch time; a
            timedelta is from now; a datetime needs a time zone.
        now: Epoch seconds.
        field: The field name that errors show.

    Raises:
        InvalidJob: Naive datetime, milliseconds, NaN, or not a time at all. [SCHED-4]
    """
    if _is_number(when) and when < RELATIVE_BELOW:
        return now + max(when, -now)  # not before 1970; any past time runs at once
    return absolute(when, now=now, field=field)


def absolute(when: When, *, now: float, field: str = "at") -> float:
    """Return the epoch second that `when` means; a number already is one. [SCHED-15]"""
    if isinstance(when, timedelta):
        return now + when.total_seconds()
    if isinstance(when, datetime):
        if when.tzinfo is None:
            raise InvalidJob(
                "SCHED-2",
                field,
                f"{when.isoformat()} has no time zone, so it names no instant; "
                "use datetime.now(UTC) + ... or .astimezone()",
            )
        return when.timestamp()
    return epoch(when, field=field)


def epoch(value: object, *, field: str = "at") -> float:
    """Return `value` if it can be an epoch second, unchanged. [SCHED-4]"""
    if not _is_number(value):
        if isinstance(value, int | float) and not isinstance(value, bool):
            raise InvalidJob("SCHED-4", field, f"{value!r} is not a finite number of seconds")
        raise InvalidJob(
            "SCHED-4",
            field,
            f"{value!r} is not a time; give seconds (300), timedelta(minutes=5) or an aware "
            "datetime (datetime.now(UTC) + ...)",
        )
    if value < 0:
        raise InvalidJob("SCHED-4", field, f"{value!r} is negative; no job runs before 1970")
    if value >= MILLISECONDS_FROM:
        raise InvalidJob("SCHED-4", field, f"{value!r} looks like milliseconds; give seconds")
    return value


def detect(infos: Iterable[Mapping[str, Any]]) -> Generation:
    """Return the generation to write, given the `info` of all registered processes. [GEN-5]

    Readers of generation 7 misread milliseconds, and readers of generation 8 understand both.
    Therefore a single old process decides for 7. Processes of jobwire read both and do not count.
    """
    for info in infos:
        version = info.get("version")
        if version is None:
            return 7  # Sidekiq up to 7.0.1 does not report its version
        number = _NUMBER.match(str(version))
        if number is not None and int(number[0]) < 8:
            return 7
    return 8


def utc_day(now: float) -> str:
    """Return the UTC date of the daily counters at `now`, such as `2026-11-20`. [STAT-2]"""
    return _utc_day(int(now // 86_400))


@lru_cache(maxsize=2)  # needed for every message of a worker
def _utc_day(days: int) -> str:
    return datetime.fromtimestamp(days * 86_400, UTC).strftime("%Y-%m-%d")


def _is_number(value: object) -> TypeGuard[int | float]:
    """True if `value` is a finite number.

    `math.isfinite` would fail for an integer that is too large for a float.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -math.inf < value < math.inf
