"""The differences of two runs."""

from __future__ import annotations

from typing import cast

from jobwire_conformance.reports.drift import drift
from jobwire_conformance.reports.results import Fate, Results
from tests.conformance.sample_results import results


def test_every_difference_of_two_runs_is_told() -> None:
    now = results("client/core")
    now["checks"][0]["status"] = "warn"
    now["loss_map"] = [{"case": "a", "point": "LPUSH#1", "side": "after", "outcome": "lost"}]
    lines = [*drift(results("client/core"), now)]
    assert [line.partition(": ")[2] for line in lines] == [
        "was missing, is lost",
        "was pass, is warn",
    ]
    later = cast(Results, {**now, "started": "2027-01-01T00:00:00Z", "seconds": 9.0})
    assert [*drift(now, later)] == []


def test_the_number_of_polls_before_a_cut_is_no_difference() -> None:
    def cuts(*points: tuple[str, Fate]) -> Results:
        run = results("client/core")
        run["loss_map"] = [
            {"case": "a", "point": point, "side": "after", "outcome": fate}
            for point, fate in points
        ]
        return run

    before = cuts(("EVALSHA#3", "kept"), ("EVALSHA#10", "lost"))
    assert [*drift(before, cuts(("EVALSHA#5", "kept"), ("EVALSHA#11", "lost")))] == []
    assert [*drift(before, cuts(("EVALSHA#10", "kept"), ("EVALSHA#3", "lost")))] == [
        "a, cut off after EVALSHA, number 1: was kept, is lost",
        "a, cut off after EVALSHA, number 2: was lost, is kept",
    ]
    assert [*drift(before, cuts(("EVALSHA#3", "kept")))] == [
        "a, cut off after EVALSHA, number 2: was lost, is missing"
    ]
