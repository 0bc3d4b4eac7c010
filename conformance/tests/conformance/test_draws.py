"""The rates of false alarms, and the judgement of random draws. [RETRY-4] [RETRY-11]"""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable, Sequence

import pytest

from jobwire_conformance import data
from jobwire_conformance.cases import case, chances
from jobwire_conformance.cases.case import Case
from jobwire_conformance.run import retry_jitter
from tests.rows import over

ROLLS = [*itertools.product(range(4), repeat=5)]


def rate_of(step: dict[str, object]) -> float:
    made = Case("t", "", ("worker/retry",), None, data.GENERATIONS, (), (), (step,), None)
    return sum(chance.rate for chance in chances.chances([made]))


@pytest.mark.parametrize(("distinct", "span"), [(1, 2), (2, 0), (3, 0)])
def test_the_chance_of_few_draws_is_that_of_all_rolls(distinct: int, span: int) -> None:
    """[RETRY-15]"""
    short = sum(max(roll) - min(roll) < span for roll in ROLLS)
    alike = sum(len(set(roll)) < distinct for roll in ROLLS)
    wanted = {"base": 15, "below": 4, "distinct": distinct, "span": span}
    rate = rate_of({"check": "RETRY-15", "len": 5, "draws": wanted})
    assert rate == pytest.approx((short + alike) / len(ROLLS))


def test_no_check_fails_more_often_than_the_limit() -> None:
    found = chances.chances(case.load())
    assert {"RETRY-4", "RETRY-15", "PAY-28", "FETCH-4", "BULK-4"} <= {c.requirement for c in found}
    for chance in found:
        assert chance.rate < chances.LIMIT, chance


NOW = 1_790_000_000.25
WANTED = {"base": 6576, "below": 100, "distinct": 5, "span": 80}


def members(delays: Sequence[float], **fields: object) -> tuple[list[bytes], list[float]]:
    """Return payloads that failed at NOW, and their scores."""
    times = fields or {"failed_at": 5, "retried_at": int(NOW * 1000)}
    text = json.dumps(times).encode()
    return [text] * len(delays), [NOW + delay for delay in delays]


def seen(delays: Sequence[float], **fields: object) -> object:
    """Return what is not as wanted."""
    return retry_jitter.problem(*members(delays, **fields), WANTED)


@pytest.mark.parametrize(
    "draw",
    [lambda: random.randrange(100), lambda: random.randrange(10) * 10],
    ids=["generation 8", "generations 6 and 7"],
)
def test_a_draw_of_each_generation_passes(draw: Callable[[], int]) -> None:
    assert seen([6576 + draw() for _ in range(200)]) is None


@pytest.mark.parametrize("cut", ["times", "scores", "both"])
def test_a_clock_that_is_cut_to_seconds_passes(cut: str) -> None:
    """[PUSH-3]"""
    moments = [NOW + number / 97 for number in range(200)]
    texts = [
        json.dumps({"retried_at": int(at) * 1000 if cut != "scores" else int(at * 1000)}).encode()
        for at in moments
    ]
    draws = [number * 37 % 100 for number in range(len(moments))]
    due = [
        (int(at) if cut != "times" else at) + 6576 + draw
        for at, draw in zip(moments, draws, strict=True)
    ]
    assert retry_jitter.problem(texts, due, WANTED) is None
    assert retry_jitter.problem(texts, [at + 3 for at in due], WANTED) is not None


def test_a_clock_that_was_read_twice_passes() -> None:
    assert seen([6576 + number + 0.03 for number in range(100)]) is None
    stood_still = [6576 + number + (0.6 if number == 7 else 0) for number in range(100)]
    assert seen(stood_still) is None


@over(
    ("delays", "wanted"),
    [
        ([6576.0] * 200, "80 s"),
        ([6576.0 + number % 50 for number in range(200)], "80 s"),
        ([6576.0 + number % 2 * 90 for number in range(200)], "5 different"),
        ([6576 + number / 2 - 0.25 for number in range(200)], "whole"),
        ([6576.0 + number for number in range(200)], "from 6576, below 6676"),
        ([6561.0 + number % 100 for number in range(200)], "from 6576, below 6676"),
    ],
    ids=["none", "half", "two numbers", "fractions", "too large", "another base"],
)
def test_another_draw_fails(delays: Sequence[float], wanted: str) -> None:
    found = retry_jitter.problem(*members(delays), WANTED)
    assert found is not None
    assert str(found[0]).startswith(wanted)


def test_the_time_of_the_failure_has_either_unit_and_either_name() -> None:
    delays = [6576.0 + number for number in range(100)]
    assert seen(delays, retried_at=NOW) is None
    assert seen(delays, failed_at=int(NOW * 1000)) is None
    assert seen(delays, retry_count=1) is not None
