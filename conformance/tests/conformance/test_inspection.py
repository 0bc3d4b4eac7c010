"""Judgement of inspectors' answers, and nested values that cases expect."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jobwire_conformance import data
from jobwire_conformance.cases import case as cases
from jobwire_conformance.cases import obligations
from jobwire_conformance.cases.match import Scope, matches
from jobwire_conformance.cases.values import plain
from tests.conformance.test_suite import bad, load, outcome_of, reference
from tests.rows import over

pytestmark = [pytest.mark.process, pytest.mark.usefixtures("own_python")]


SCOPE = Scope(generation=8, began=1786960000.0, now=1786960010.0)
SOON = {"$": "time", "within": 1, "of": "now+60"}


@over(
    ("matcher", "value", "fits"),
    [
        ({"$": "has", "is": {"a": 1}}, {"a": 1, "b": 2}, True),
        ({"$": "has", "is": {"a": 1}}, {"a": 1.0}, False),
        ({"$": "has", "is": {"a": {"$": "absent"}}}, {"b": 2}, True),
        ({"$": "has", "is": {"a": {"$": "absent"}}}, {"a": None}, False),
        ({"$": "has", "is": {}}, [], False),
        ([{"$": "any"}, {"$": "has", "is": {"a": [1]}}], [None, {"a": [1], "b": 2}], True),
        ([{"$": "any"}], [1, 2], False),
        ({"a": {"$": "range", "min": 1, "max": 2}}, {"a": 1.5}, True),
        ({"a": {"$": "range", "min": 1, "max": 2}}, {"a": 1.5, "b": 1}, False),
        ({"a": {"$": "range", "min": 1, "max": 2}}, {}, False),
        ({"a": SOON}, {"a": 1786960065.5}, True),
        ({"a": SOON}, {"a": 1786960065500}, False),
        ({**SOON, "either": True}, 1786960065500, True),
        ({**SOON, "either": True}, 1786960065.5, True),
        ({**SOON, "either": True}, 1786960065, False),
        ({"a": True}, {"a": 1}, False),
    ],
)
def test_matchers_may_be_in_the_parts_of_a_literal(matcher: Any, value: Any, fits: bool) -> None:
    assert matches(matcher, plain(value), SCOPE) is fits


@pytest.mark.process
def test_an_answer_of_another_form_is_an_adapter_fault() -> None:
    settings = reference()
    assert settings.driver is not None
    driver = replace(settings.driver, garble=lambda line: line.replace(b'"size"', b'"length"'))
    outcome = outcome_of(replace(settings, driver=driver), load("inspect-queues"))
    assert outcome.status == 3
    assert "#/$defs/queues" in str(outcome.errors[0])


def test_what_a_driver_does_not_have_blocks_what_is_built_on_it() -> None:
    """A claim is not met by answers of "unsupported"."""
    settings = reference()
    assert settings.driver is not None

    def garble(line: bytes) -> bytes:
        if b'"queues"' in line:
            return line[: line.index(b'"ok"')] + b'"unsupported": true}'
        return line

    outcome = outcome_of(
        replace(settings, driver=replace(settings.driver, garble=garble)), load("inspect-queues")
    )
    assert (outcome.errors, outcome.status) == ([], 1)
    assert "was 'unsupported' instead of 'ok'" in bad(outcome)["inspect-queues#INSP-2"]


def test_a_value_that_was_not_there_fails_what_speaks_of_it() -> None:
    """[ITER-3]: the implementation fails, not the suite."""
    (case,) = load("iterate-cancelled")
    steps: list[dict[str, Any]] = [
        {"check": "ITER-6", "hash": "it-x", "fields": {"c": {"$": "bind", "name": "c"}}},
        {"check": "ITER-6", "that": {"performed": "x", "is": {"$": "same", "name": "c"}}},
    ]
    outcome = outcome_of(reference(), [replace(case, steps=steps, seed=())])
    assert (outcome.errors, outcome.status) == ([], 1)


@pytest.mark.process
def test_every_obligation_of_an_inspector_is_checked() -> None:
    parts = ("inspector/", "worker/iteration", "worker/metrics")
    claims = [claim for claim in data.CLAIMS if claim.startswith(parts)]
    assert len(claims) == 11
    assert obligations.uncovered(cases.load(), claims) == []
