"""The chaos and soak runs find every kind of error: lost jobs, entries that stay, growth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos import jobs as kinds
from tests.chaos import plan
from tests.chaos.audit import Account, audit
from tests.chaos.in_flight import SLACK, InFlight, Process
from tests.chaos.plan import Job
from tests.chaos.soak import Sample, grown
from tests.chaos.storm import Storm
from tests.rows import over

QUICK, FLAKY, DOOMED = 0, 1, 2
ENTRY = ("host:11:nonce", "7:low")
FLAT = [Sample(n * 1000, n * 1.0, 50_000, 14, 16, 20) for n in range(1, 21)]
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


def watch(looks: Iterable[tuple[float, Process | None]]) -> dict[tuple[str, str], float]:
    """Return what looks at one entry find; each has a time and the entry's process."""
    watched = InFlight()
    for now, process in looks:
        watched.look([ENTRY], {} if process is None else {ENTRY[0]: process}, now=now)
    return watched.overdue


def beating(until: float, *, faults: int = 0, since: float = 0) -> list[tuple[float, Process]]:
    """Return a look each second at a process that beats every ten seconds."""
    return [
        (since + second, Process((since + second) // 10 * 10, faults))
        for second in range(int(until - since) + 1)
    ]


def test_an_entry_may_live_for_two_beats() -> None:
    assert watch(beating(20 + SLACK - 1)) == {}
    assert watch(beating(20 + SLACK)) == {ENTRY: 20 + SLACK}
    assert watch(beating(40)) == {ENTRY: 40}


@pytest.mark.parametrize(
    "between",
    [
        [(20.0, None)],  # dead or suspended
        beating(22, since=20, faults=1),
    ],
)
def test_age_begins_again_after_a_fault(between: list[tuple[float, Process | None]]) -> None:
    after = between[-1][1]
    faults = after.faults if after else 0
    looks = [*beating(19), *between]
    assert watch([*looks, *beating(44, since=24, faults=faults)]) == {}
    assert ENTRY in watch([*looks, *beating(49, since=24, faults=faults)])


def test_beats_that_fail_do_not_count() -> None:
    assert watch((second, Process(0.0, 0)) for second in range(100)) == {}


def test_early_beats_do_not_count() -> None:
    looks = [(float(second), Process(second // 2 * 2, 0)) for second in range(40)]
    assert watch(looks[: 20 + int(SLACK)]) == {}
    assert ENTRY in watch(looks)


def test_an_entry_that_leaves_begins_again() -> None:
    watched = InFlight()
    for now, process in beating(24):
        watched.look([ENTRY] if now != 15 else [], {ENTRY[0]: process}, now=now)
    assert watched.overdue == {}


def test_a_beat_that_a_snapshot_forgets_counts_once() -> None:
    beats = [0.0, 10.0, 0.0, 10.0, 0.0, 10.0]
    assert watch((10.0 * n, Process(beat, 0)) for n, beat in enumerate(beats)) == {}


def test_what_stays_the_same_is_all_right() -> None:
    wobbling = [
        replace(sample, rss_kib=50_000 + 1000 * (n % 4), files=20 + n % 3)
        for n, sample in enumerate(FLAT)
    ]
    assert grown(FLAT) == grown(wobbling) == []


def test_warm_up_does_not_count() -> None:
    assert grown([replace(FLAT[0], rss_kib=20_000, threads=3), *FLAT[1:]]) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rss_kib": 56_000}, "memory: from 50000 to 56000 KiB"),
        ({"threads": 17}, "threads: from 14 to 17"),
        ({"connections": 19}, "connections: from 16 to 19"),
        ({"files": 23}, "files: from 20 to 23"),
    ],
)
def test_what_grows_is_found(change: dict[str, Any], words: str) -> None:
    assert grown([*FLAT[:-1], replace(FLAT[-1], **change)]) == [words]
