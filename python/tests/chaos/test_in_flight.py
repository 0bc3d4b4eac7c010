"""The chaos run finds entries that outlive two heartbeats, and only those."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from tests.chaos.in_flight import SLACK, InFlight, Process

ENTRY = ("host:11:nonce", "7:low")


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
