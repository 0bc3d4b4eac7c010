"""jobwire.protocol.times: two generations of writers, and readers that accept both."""

from __future__ import annotations

import math
from datetime import date, timedelta
from typing import Any

import pytest

from jobwire.errors import InvalidJob
from jobwire.protocol import times
from jobwire.protocol.payload import encode
from jobwire.protocol.times import Generation
from tests.rows import over

NOW = 1_795_192_067.0
HUGE = 10**400


@over(
    ("now", "generation", "text"),
    [
        (1795192067.25, 7, b"1795192067.25"),
        (1795192067.0, 7, b"1795192067.0"),
        (1795192067, 7, b"1795192067.0"),
        (1795192067.25, 8, b"1795192067250"),
        (1795192067.0, 8, b"1795192067000"),
        (1795192067.9999, 8, b"1795192067999"),
    ],
)
def test_stamp(now: float, generation: Generation, text: bytes) -> None:
    """GEN-1: seconds with a point, also whole ones. GEN-2: integer milliseconds."""
    assert encode(times.stamp(now, generation)) == text


def test_a_raw_time_is_always_absolute() -> None:
    """SCHED-2: 60 as a raw `at` is a minute after midnight of 1970."""
    assert times.absolute(60, now=NOW) == 60
    assert times.absolute(timedelta(seconds=60), now=NOW) == NOW + 60


@over(
    ("value", "problem"),
    [
        (True, "not a time; give seconds"),
        ("5m", r"'5m' is not a time; give seconds \(300\), timedelta\(minutes=5\) or an aware"),
        (date(2026, 11, 28), "not a time; give seconds"),
        (None, "not a time; give seconds"),
        (math.nan, "not a finite number"),
        (math.inf, "not a finite number"),
        (-math.inf, "not a finite number"),
        (-0.5, "negative"),
        (10**11, "looks like milliseconds"),
        (1795192067250, "looks like milliseconds"),
        (HUGE, "looks like milliseconds"),
    ],
)
def test_impossible_times_are_refused(value: Any, problem: str) -> None:
    """SCHED-4: negative, not finite, not a number, or not below 10^11."""
    with pytest.raises(InvalidJob, match=problem) as caught:
        times.epoch(value, field="at[3]")
    assert (caught.value.rule, caught.value.field) == ("SCHED-4", "at[3]")


@pytest.mark.parametrize("value", [0, 0.0, 1795192067.5, 10**11 - 1])
def test_a_possible_time_is_returned_as_it_is(value: float) -> None:
    """SCHED-4: the limit itself is the first refused time."""
    assert times.epoch(value) is value


@over(
    ("infos", "generation"),
    [
        ([], 8),
        ([{"version": "8.1.7"}], 8),
        ([{"version": "10.0.0"}], 8),
        ([{"version": "7.3.2"}], 7),
        ([{"version": "8.0.0"}, {"version": "6.4.1"}], 7),
        ([{"hostname": "a"}], 7),
        ([{"version": None}], 7),
        ([{"version": "jobwire 0.1.0"}], 8),
        ([{"version": "jobwire 0.1.0"}, {"version": "7.0.2"}], 7),
        ([{"version": ""}], 8),
        ([{"version": "²"}], 8),
        ([{"version": 7}], 7),
        ([{"version": "7-beta"}], 7),
        ([{"version": "70.1"}], 8),
    ],
)
def test_detect(infos: list[dict[str, Any]], generation: Generation) -> None:
    """GEN-5: one Sidekiq below 8 or without a version decides; jobwire does not count."""
    assert times.detect(infos) == generation


@pytest.mark.parametrize(
    ("now", "day"),
    [
        (1795176000.0, "2026-11-20"),
        (1795132800.0, "2026-11-20"),
        (1795132799.999, "2026-11-19"),
        (0.0, "1970-01-01"),
    ],
)
def test_utc_day(now: float, day: str) -> None:
    """STAT-2: the date is in UTC."""
    assert times.utc_day(now) == day
