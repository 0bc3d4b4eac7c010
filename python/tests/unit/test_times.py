"""jobwire.protocol.times: two generations of writers, and readers that accept both."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone
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


@over(
    ("value", "seconds"),
    [
        (1795192067.25, 1795192067.25),
        (1795192067250, 1795192067.25),
        (1795192067, 1795192067.0),
        (1795192067250.0, 1795192067.25),
        (10**11 - 1, 99_999_999_999.0),
        (10**11, 100_000_000.0),
        (1e11, 100_000_000.0),
        (99_999_999_999.5, 99_999_999_999.5),
        (0, 0.0),
        (-1.5, -1.5),
        (-(10**11), -100_000_000.0),
    ],
)
def test_read_by_form_and_magnitude(value: float, seconds: float) -> None:
    """GEN-3, GEN-6, GEN-8: if form and magnitude disagree, the magnitude counts."""
    assert times.read(value) == seconds


@over("value", [None, True, "1795192067", [], {}, math.nan, math.inf, -math.inf, HUGE, -HUGE])
def test_read_takes_nothing_else_for_a_time(value: object) -> None:
    """GEN-3: an invalid time in a payload does not fail the reader."""
    assert times.read(value) is None


@over(
    ("when", "moment"),
    [
        (0, NOW),
        (60, NOW + 60),
        (0.25, NOW + 0.25),
        (999_999_999, NOW + 999_999_999),
        (999_999_999.5, NOW + 999_999_999.5),
        (1_000_000_000, 1_000_000_000),
        (1_000_000_000.5, 1_000_000_000.5),
        (timedelta(minutes=1), NOW + 60),
        (timedelta(days=20_000), NOW + 20_000 * 86_400),
        (datetime(2026, 11, 20, 12, tzinfo=UTC), 1795176000.0),
        (datetime(2026, 11, 20, 12, tzinfo=timezone(timedelta(hours=2))), 1795168800.0),
    ],
)
def test_instant(when: Any, moment: float) -> None:
    """SCHED-2: a number below 1,000,000,000 is a delay from now, any other a time."""
    assert times.instant(when, now=NOW) == moment


@pytest.mark.parametrize("when", [-1, -1e15, -HUGE])
def test_a_delay_below_zero_is_in_the_past(when: float) -> None:
    """SCHED-3: at any distance; the caller then pushes at once."""
    assert 0 <= times.instant(when, now=NOW) < NOW


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


@over("value", [math.nan, math.inf, -math.inf, True, "5", 10**11])
def test_conveniences_refuse_what_is_no_time(value: Any) -> None:
    """SCHED-4: also if a number may be a delay."""
    with pytest.raises(InvalidJob) as caught:
        times.instant(value, now=NOW)
    assert caught.value.rule == "SCHED-4"


@pytest.mark.parametrize("convert", [times.instant, times.absolute])
def test_a_naive_datetime_is_refused(convert: Any) -> None:
    with pytest.raises(InvalidJob, match="2026-11-20T12:00:00 has no time zone"):
        convert(datetime(2026, 11, 20, 12), now=NOW)


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
