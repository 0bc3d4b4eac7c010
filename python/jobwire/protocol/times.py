"""Times on the wire: two generations of writers, readers that accept both. [GEN-1] to [GEN-5]"""

from __future__ import annotations

import math
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
"""7 writes float seconds (Sidekiq up to 7), 8 integer milliseconds (Sidekiq 8)."""

When: TypeAlias = float | timedelta | datetime
"""Seconds or an epoch time (see `instant`), a timedelta from now, or an aware datetime."""

# Numbers below are seconds from now, others a time: Sidekiq's own rule. [SCHED-2]
RELATIVE_BELOW = 1_000_000_000
# 5138 in seconds, 1973 in milliseconds: no honest time of either unit is on the other side.
MILLISECONDS_FROM = 100_000_000_000


def stamp(now: float, generation: Generation) -> float | int:
    """Return `now` as `created_at` and its kin are written, and no other time. [GEN-1] [GEN-2]
    [GEN-4]
    """
    return float(now) if generation == 7 else int(now * 1000)


def read(value: object) -> float | None:
    """Return a payload's time in seconds, whoever wrote it; None if it is no time. [GEN-3]

    An integer is milliseconds and a float seconds, unless the size says that the writer
    meant the other unit.
    """
    if not _is_number(value):
        return None
    try:
        return value / 1000 if abs(value) >= MILLISECONDS_FROM else float(value)
    except OverflowError:
        return None


def instant(when: When, *, now: float, field: str = "at") -> float:
    """Return the epoch second that `when` means, in the way people say it. [SCHED-2]

    Args:
        when: A number below 1,000,000,000 is seconds from now, any other an epoch time; a
            timedelta is from now; a datetime needs a time zone.
        now: Epoch seconds.
        field: The name to blame in errors.

    Raises:
        InvalidJob: Naive datetime, milliseconds, NaN, or not a time at all. [SCHED-4]
    """
    if _is_number(when) and when < RELATIVE_BELOW:
        return now + max(when, -now)  # no earlier than 1970: it is over in any case
    return absolute(when, now=now, field=field)


def absolute(when: When, *, now: float, field: str = "at") -> float:
    """Return the epoch second that `when` means, a number being one already. [SCHED-3]"""
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
        raise InvalidJob("SCHED-4", field, f"{value!r} is not a finite number of seconds")
    if value < 0:
        raise InvalidJob("SCHED-4", field, f"{value!r} is negative; no job runs before 1970")
    if value >= MILLISECONDS_FROM:
        raise InvalidJob("SCHED-4", field, f"{value!r} looks like milliseconds; give seconds")
    return value


def detect(infos: Iterable[Mapping[str, Any]]) -> Generation:
    """Return the generation to write beside these processes. [GEN-5]

    Readers of generation 7 misread milliseconds, readers of generation 8 understand both: one
    old process decides. Our own processes read both and have no say.
    """
    for info in infos:
        version = info.get("version")
        if version is None:
            return 7  # up to 7.0.1 a process did not say
        major, _, _ = str(version).partition(".")
        if major.isdecimal() and int(major) < 8:
            return 7
    return 8


def utc_day(now: float) -> str:
    """Return the UTC date that a statistic at `now` counts for: `2026-11-20`. [STAT-2]"""
    return _utc_day(int(now // 86_400))


@lru_cache(maxsize=2)  # asked for with every message of a worker
def _utc_day(days: int) -> str:
    return datetime.fromtimestamp(days * 86_400, UTC).strftime("%Y-%m-%d")


def _is_number(value: object) -> TypeGuard[int | float]:
    """Whether `value` is a finite number; compared, since an integer may exceed every float."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return -math.inf < value < math.inf
