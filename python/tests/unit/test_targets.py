"""The targets program: what it makes of its samples. No figure is judged here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from benchmarks.targets.plot import bars
from benchmarks.targets.report import Report, pages
from benchmarks.targets.rows import TARGETS, runs

PAGE = Path(__file__).resolve().parents[3] / "docs" / "performance"
CALM = {"others": 0.0, "load": 0.5}


def test_every_target_is_measured_by_a_run() -> None:
    kinds = {run.kind for run in runs()}
    assert {target.kind for target in TARGETS} == kinds
    assert {target.number for target in TARGETS} == set(range(1, 15))


def test_the_page_is_made_from_the_results() -> None:
    results = json.loads((PAGE / "results.json").read_text())
    made = pages(results)
    written = {path.name: path.read_text() for path in PAGE.iterdir() if path.name in made}
    assert written == made
    plots = {path.name for path in PAGE.glob("*.svg")}
    assert plots == made.keys() - {"targets.md"}


def measured(kind: str, **teams: list[dict[str, float]]) -> Report:
    report = Report()
    names = {"jobwire": "jobwire 1", "sidekiq": "Sidekiq 8", "peer": "peer 3"}
    for team, samples in teams.items():
        for sample in samples:
            report.add(kind, names[team], 10, sample, CALM)
    return report


@pytest.mark.parametrize(
    ("kind", "ours", "theirs", "verdict"),
    [
        ("drain", {"rate": 400.0}, {"rate": 100.0}, True),
        ("drain", {"rate": 399.0}, {"rate": 100.0}, False),
        ("drain", {"rate": 400.0}, None, None),
        ("failing", {"rate": 10_999.0}, {"rate": 100.0}, False),
        ("failing", {"rate": 11_000.0}, {"rate": 2_751.0}, False),
        ("failing", {"rate": 11_000.0}, {"rate": 2_750.0}, True),
        ("one", {"rate": 26_000.0}, None, True),
        ("lone", {"p50_ms": 0.5}, {"p50_ms": 0.4}, False),
        ("lone", {"p50_ms": 0.4}, {"p50_ms": 0.4}, True),
        ("boot", {"boot_s": 0.36}, None, False),
        ("boot", {}, None, None),
    ],
)
def test_a_verdict(
    kind: str, ours: dict[str, float], theirs: dict[str, float] | None, verdict: bool | None
) -> None:
    teams: dict[str, list[dict[str, float]]] = {"jobwire": [ours]}
    if theirs is not None:
        teams["sidekiq"] = [theirs]
    report = measured(kind, **teams)
    target = next(each for each in TARGETS if each.kind == kind)
    assert report.verdict(target) is verdict


def test_a_table_has_medians_and_spreads() -> None:
    rates = [{"rate": rate} for rate in (50_000.0, 1.0, 60_000.0)]
    report = measured(
        "drain", jobwire=rates, sidekiq=[{"rate": 10_000.0}], peer=[{"rate": 2_000.0}]
    )
    row = next(line for line in report.table().splitlines() if line.startswith("| 1 |"))
    assert "50,000 (1 to 60,000) | 10,000 |" in row
    assert row.endswith("| yes |")
    others = report.others()
    assert "| jobwire 1 | Sidekiq 8 | peer 3 |" in others
    assert "| 50,000 | 10,000 | 2,000 |" in others


def test_disturbed_samples_are_counted() -> None:
    report = Report()
    for others in (0.0, 0.1, 0.5, 2.0):
        report.add("drain", "jobwire 1", 10, {"rate": 1.0}, {"others": others, "load": 1.0})
    assert report.disturbed() == 0.5


def test_a_plot_is_a_picture_of_its_samples() -> None:
    picture: Any = ElementTree.fromstring(bars("a < b", {"one": [1.0, 3.0, 2.0], "two": [1.0]}))
    space = "{http://www.w3.org/2000/svg}"
    texts = [each.text for each in picture.iter(f"{space}text")]
    assert texts == ["a < b", "one", "2", "two", "1"]
    widths = [float(each.attrib["width"]) for each in picture.iter(f"{space}rect")][1:]
    assert widths[0] == pytest.approx(2 * widths[1], abs=0.2)
