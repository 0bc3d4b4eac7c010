"""The account of the chaos run finds every kind of error."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.chaos import jobs as kinds
from tests.chaos import plan
from tests.chaos.audit import Account, audit
from tests.chaos.plan import Job
from tests.chaos.storm import Storm
from tests.rows import over

QUICK, FLAKY, DOOMED = 0, 1, 2
JOBS = [
    Job(QUICK, "Quick", [QUICK], "low"),
    Job(FLAKY, "Flaky", [FLAKY, 1], "low"),
    Job(DOOMED, "Doomed", [DOOMED], "low"),
]


def account(**changes: Any) -> Account:
    """Return the account of a run in which all went well, except for this."""
    facts: dict[str, Any] = {
        "finished": {QUICK: [11], FLAKY: [11]},
        "failed": {FLAKY, DOOMED},
        "dead": Counter({DOOMED: 1}),
        "places": (),
    }
    return audit(JOBS, **{**facts, **changes})


def test_a_run_in_which_all_went_well_is_balanced() -> None:
    found = account()
    assert (found.finished, found.dead) == ([QUICK, FLAKY], [DOOMED])
    assert found.balanced
    assert found.duplicates == []


@over(
    ("changes", "lost", "stuck", "invented"),
    [
        ({"finished": {FLAKY: [11]}}, [QUICK], [], []),
        ({"dead": Counter()}, [DOOMED], [], []),
        ({"finished": {FLAKY: [11]}, "places": {QUICK}}, [], [QUICK], []),
        ({"places": {QUICK}}, [], [QUICK], []),
        ({"dead": Counter({DOOMED: 1, FLAKY: 1})}, [FLAKY], [], []),
        ({"finished": {QUICK: [11], FLAKY: [11], 9: [11]}}, [], [], [9]),
        ({"finished": {QUICK: [11], FLAKY: [11], DOOMED: [11]}}, [], [], [DOOMED]),
        ({"failed": {QUICK}}, [], [], [QUICK]),
        ({"dead": Counter({-1: 1})}, [DOOMED], [], [-1]),
    ],
)
def test_every_kind_of_trouble_is_found(
    changes: dict[str, Any], lost: list[int], stuck: list[int], invented: list[int]
) -> None:
    found = account(**changes)
    assert (found.lost, found.stuck, found.invented) == (lost, stuck, invented)
    assert not found.balanced


def test_a_poison_pill_has_a_reason_to_be_dead() -> None:
    """REL-10: in a storm, four processes that die can hold even a harmless job."""
    found = account(finished={FLAKY: [11]}, poisoned={QUICK})
    assert found.balanced
    assert found.dead == [QUICK, DOOMED]


@pytest.mark.parametrize(
    ("changes", "excused"),
    [
        ({}, False),
        ({"repeated": {QUICK}}, True),
        ({"restored": {QUICK}}, True),
        ({"disturbed": {11}}, True),
        ({"disturbed": {12}}, False),
    ],
)
def test_a_second_run_needs_an_excuse(changes: dict[str, Any], excused: bool) -> None:
    found = account(finished={QUICK: [11, 12], FLAKY: [11]}, **changes)
    assert found.duplicates == [QUICK]
    assert found.balanced is excused


def test_a_seed_says_all() -> None:
    assert plan.jobs(100, seed=1, seconds=10) == plan.jobs(100, seed=1, seconds=10)
    assert plan.jobs(100, seed=1, seconds=10) != plan.jobs(100, seed=2, seconds=10)
    one, other = (
        [(at, what) for at, what, _ in plan.disturbances(seed=1, seconds=300)] for _ in range(2)
    )
    assert one == other
    assert {what for _, what in one} == {*plan.DISTURBANCES, "long_pause"}
    assert all(hasattr(Storm, f"_{what}") for _, what in one)
    assert {job.kind for job in plan.jobs(1000, seed=1, seconds=10)} == {*kinds.app.jobs}
    assert {*kinds.ROGUES} == {*plan.ROGUES}
    assert {*kinds.ODD_FAILURES} == {*plan.ODD_FAILURES}


def test_a_lull_disturbs_no_process() -> None:
    found = plan.disturbances(seed=1, seconds=3000)
    lull = {what for at, what, _ in found if plan.phase(at, 3000) == "lull"}
    assert lull == {name for name, (_, weight) in plan.DISTURBANCES.items() if weight}
