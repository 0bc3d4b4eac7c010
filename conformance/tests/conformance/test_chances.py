"""The rates of false alarms: exact for small draws, and below the limit in all cases."""

from __future__ import annotations

import itertools

import pytest

from jobwire_conformance import data
from jobwire_conformance.cases import case, chances
from jobwire_conformance.cases.case import Case

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
