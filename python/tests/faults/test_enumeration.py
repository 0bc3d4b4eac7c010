"""No job is lost by any fault at any command. All commands: `.ci/release-check faults`.

These tests inject only the most telling faults, at commands that change data.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from harness.servers import Reaper
from jobwire.application.config import FetchMode
from jobwire_conformance.wire.points import Point
from tests.faults import guarantees
from tests.faults.runs import ROOT, Bench, Result, Run, faulty_runs
from tests.faults.scenarios import SCENARIOS, Scenario

REPEATS = 5
PAGE = guarantees.PAGE.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def bench(_reaper: Reaper) -> Iterator[Bench]:
    bench = Bench(_reaper, sandboxes=6)
    yield bench
    bench.close()


def struck(bench: Bench, scenario: Scenario, fetch: FetchMode, *faults: str) -> list[Result]:
    """Return the results of all runs with one of these faults.

    How many commands a worker needs depends on the machine: it may send the last one together with
    another, so that the command with that number never comes. Its runs are then repeated.
    """
    results: list[Result] = []
    missed = {*product(scenario.certain, faults)}
    for repeated in range(REPEATS):
        (clean,) = bench.all([Run(scenario, fetch=fetch, scripts_known=True)])
        assert clean.problems == [], clean.log
        assert clean.effects
        runs = faulty_runs(scenario, clean, faults=faults, effects_only=True, scripts_known=True)
        results += bench.all(
            run
            for run in runs
            if not repeated or (run.point and (run.point.label, run.fault) in missed)
        )
        missed -= {
            (each.point.label, each.fault) for each in results if each.point and each.reached
        }
        if fetch == "basic" or not missed:
            break
    else:
        pytest.fail(f"never reached: {sorted(missed)}")
    return results


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.process if name == "success" else pytest.mark.matrix)
        for name in SCENARIOS
    ],
)
def test_no_fault_loses_a_job(bench: Bench, name: str) -> None:
    """GUAR-1, GUAR-2, REL-1, REL-2, REL-4, REL-8, PUSH-2, PUSH-8, BULK-6, SCHED-5, RETRY-9."""
    scenario, faults = SCENARIOS[name], ("cut after", "READONLY", "kill after")
    results = struck(bench, scenario, "reliable", *faults)
    assert [f"{each}\n{each.log}" for each in results if each.problems] == []
    assert [each.lost for each in results] == [[]] * len(results)


@pytest.mark.matrix
def test_basic_fetch_loses_jobs_in_its_window_only(bench: Bench) -> None:
    """FETCH-1: LW-1, which the reliable profile does not have; so these runs can find a loss."""
    results = struck(bench, SCENARIOS["success"], "basic", "cut before", "cut after", "kill after")
    assert [f"{each}\n{each.log}" for each in results if each.problems] == []
    fates = {(each.point.label, each.fault): each.lost for each in results if each.point}
    assert fates["BRPOP", "kill after"] or fates["BRPOP", "cut after"]


@pytest.mark.matrix
def test_basic_fetch_puts_a_job_back_though_a_connection_ends(bench: Bench) -> None:
    """SIG-5: the process ends normally, so no job may be lost: LW-1 is for crashes."""
    run = Run(SCENARIOS["hard stop"], fetch="basic", point=Point("RPUSH", 1), fault="cut before")
    (result,) = bench.all([run])
    assert result.reached
    assert result.lost == []


# -- docs/explanation/guarantees.md


def test_the_page_has_every_scenario_and_no_loss_with_reliable_fetch() -> None:
    assert PAGE.startswith(guarantees.introduction()), ".ci/release-check faults --write"
    rows = guarantees.rows(PAGE)
    assert list(rows) == [
        (fetch, scenario.name)
        for fetch in ("reliable", "basic")
        for scenario in SCENARIOS.values()
        if scenario.means_anything("reliable" if fetch == "reliable" else "basic")
    ]
    for (fetch, _), (_, runs, lost, stuck, invented, _) in rows.items():
        assert int(runs) > 0
        assert (stuck, invented) == ("0", "0")
        assert lost == "0" or fetch == "basic"


def test_the_page_tells_of_every_script() -> None:
    """Every script has rows on the page; `.ci/release-check faults --write` adds them.

    Those of periodic jobs are in test_periodic_faults.py, which counts ticks.
    """
    told = " ".join(
        cells[0] for (fetch, _), cells in guarantees.rows(PAGE).items() if fetch == "reliable"
    )
    scripts = {path.name for path in (ROOT / "lua").glob("*.lua")}
    left = {name for name in scripts if f"`{name}`" not in told}
    assert {name for name in left if not name.startswith("periodic_")} == set()


def test_new_results_replace_the_row_of_their_scenario_only() -> None:
    assert guarantees.render([], PAGE) == PAGE
    points = (Point("BRPOP", 1), Point("promote.lua", 1))
    new = [Result("dead", "basic", point, "OOM", reached=True, lost=["a"]) for point in points]
    page = guarantees.render(new, PAGE)
    before, after = guarantees.rows(PAGE), guarantees.rows(page)
    assert after.pop(("basic", "dead")) == ["`promote.lua`", "2", "2", "0", "0", "0"]
    del before["basic", "dead"]
    assert after == before
    assert guarantees.render([], page) == page


def test_chaos_has_one_column_for_each_seed() -> None:
    page = "# Guarantees\n\ntext\n"
    for seed, lost in ((2, 5), (1, 7), (2, 0)):
        figures = {"jobs": "1,000", "lost": lost}
        page = guarantees.with_figures(page, guarantees.CHAOS, seed, figures)
    both = guarantees.with_figures(page, guarantees.MIXED, 1, {"jobs": "9"})
    assert both.startswith(f"{page}\n## Mixed fleet\n")
    assert both.endswith("\n\n| figure | seed 1 |\n| --- | --- |\n| jobs | 9 |\n")
    assert guarantees.with_figures(both, guarantees.CHAOS, 2, figures) == both
    assert page.startswith("# Guarantees\n\ntext\n\n## Chaos\n")
    assert page.endswith(
        "\n\n| figure | seed 1 | seed 2 |\n| --- | --- | --- |\n"
        "| jobs | 1,000 | 1,000 |\n| lost | 7 | 0 |\n"
    )


def test_the_page_tells_of_three_runs_of_chaos_without_a_loss() -> None:
    section = PAGE[PAGE.index(f"## {guarantees.CHAOS}") :]
    for title in ("lost", "stuck", "overdue", "invented", "of these, without a reason"):
        assert f"\n| {title} | 0 | 0 | 0 |\n" in section
