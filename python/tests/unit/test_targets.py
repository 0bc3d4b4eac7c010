"""The targets program: its verdicts about made-up samples. No real figure is judged here."""

from __future__ import annotations

import json
import re
from pathlib import Path

from benchmarks.targets.judge import TargetVerdict
from benchmarks.targets.report import Report, pages, samples_of, write
from benchmarks.targets.rows import TARGETS, runs

from tests.rows import over

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


def test_the_samples_come_back_from_the_file(tmp_path: Path) -> None:
    """Samples with different figures are also kept."""
    report = measured("drain", jobwire=[{"rate": 1.0}, {"rate": 2.0}], rq=[{"boot_s": 3.0}])
    report.add("boot", NAMES["jobwire"], 10, {"rate": 4.0, "boot_s": 5.0}, CALM)
    write(tmp_path, report, {"cores": 2, "server": "", "python": "", "system": "", "date": ""})
    stored = json.loads((tmp_path / "results.json").read_text())
    assert len(stored["rows"]) == 3
    assert samples_of(stored["rows"]) == report.samples


NAMES = {
    "jobwire": "jobwire 1",
    "plain": "Sidekiq 8.1",
    "yjit": "Sidekiq 8.1 with YJIT",
    "huey": "huey 3",
    "rq": "rq 3",
    "bee": "bee-queue 2",
}


def measured(kind: str, **teams: list[dict[str, float]]) -> Report:
    report = Report()
    for team, samples in teams.items():
        for sample in samples:
            report.add(kind, NAMES[team], 10, sample, CALM)
    return report


def verdict(kind: str, figure: str, **medians: float) -> TargetVerdict | None:
    """Return the verdict about a figure with one sample of each competitor."""
    report = measured(kind, **{team: [{figure: value}] for team, value in medians.items()})
    [target] = [each for each in TARGETS if (each.kind, each.figure) == (kind, figure)]
    return report.verdict(target)


@over(
    ("kind", "figure", "medians", "reached"),
    [
        # With YJIT, if that was measured; otherwise YJIT counts as twice as fast.
        ("drain", "rate", {"jobwire": 200.0, "yjit": 100.0, "plain": 10.0}, True),
        ("drain", "rate", {"jobwire": 199.0, "yjit": 100.0, "plain": 10.0}, False),
        ("drain", "rate", {"jobwire": 400.0, "plain": 100.0}, True),
        ("drain", "rate", {"jobwire": 399.0, "plain": 100.0}, False),
        ("drain", "rate", {"jobwire": 400.0}, None),
        # The faster Sidekiq counts if the target does not name a Ruby.
        ("logged", "rate", {"jobwire": 400.0, "plain": 100.0}, True),
        ("logged", "rate", {"jobwire": 400.0, "plain": 100.0, "yjit": 101.0}, False),
        # All have to hold: one failure decides, a missing figure leaves the target undecided.
        ("failing", "rate", {"jobwire": 400.0, "yjit": 100.0, "bee": 400.0}, True),
        ("failing", "rate", {"jobwire": 400.0, "yjit": 100.0, "bee": 401.0}, False),
        ("failing", "rate", {"jobwire": 400.0, "yjit": 100.0}, None),
        ("failing", "rate", {"jobwire": 399.0, "yjit": 100.0}, False),
        ("failing", "rate", {"jobwire": 900.0, "plain": 100.0, "bee": 100.0}, None),
        ("one", "rate", {"jobwire": 120.0, "huey": 100.0, "plain": 120.0, "yjit": 200.0}, True),
        ("one", "rate", {"jobwire": 119.0, "huey": 100.0, "plain": 100.0}, False),
        # The best of several competitors counts.
        ("async", "rate", {"jobwire": 40_000.0, "huey": 10_000.0, "rq": 1.0}, True),
        ("async", "rate", {"jobwire": 40_000.0, "huey": 1.0, "rq": 10_001.0}, False),
        ("async", "rate", {"jobwire": 29_999.0, "rq": 1.0}, False),
        # Less is better: the best is the least.
        ("lone", "p50_ms", {"jobwire": 0.4, "plain": 0.4, "yjit": 0.5}, True),
        ("lone", "p50_ms", {"jobwire": 0.4, "plain": 0.5, "yjit": 0.3}, False),
        ("bulk", "bytes", {"jobwire": 149.0, "plain": 149.0}, True),
        ("bulk", "bytes", {"jobwire": 148.0, "plain": 149.0}, False),
        # Figures without a competitor.
        ("boot", "boot_s", {"jobwire": 0.35}, True),
        ("boot", "boot_s", {"jobwire": 0.36}, False),
    ],
)
def test_a_verdict(kind: str, figure: str, medians: dict[str, float], reached: bool | None) -> None:
    result = verdict(kind, figure, **medians)
    assert result is not None
    assert result.reached is reached


def test_without_jobwire_there_is_no_verdict() -> None:
    assert verdict("boot", "boot_s", plain=0.1) is None


def test_the_readme_has_measured_figures() -> None:
    """The first figure of speed is that with the default log; all are those of the tables."""
    readme = (PAGE.parents[1] / "README.md").read_text("utf-8")
    tables = (PAGE / "targets.md").read_text("utf-8")
    (speed,) = re.findall(r"^\| Speed \| (.*) \|$", readme, re.MULTILINE)
    (logged,) = re.findall(r"^\| 2 \| the same, with a start and a done .*", tables, re.MULTILINE)
    quiet = " ".join(re.findall(r"^\| 1 \| drain, .*", tables, re.MULTILINE))
    figures = re.findall(r"\d+(?:,\d{3}|\.\d)", speed)
    assert len(figures) == 6
    measured = set(re.findall(r"[\d.,]+", logged + quiet))
    assert figures[0] in re.findall(r"[\d.,]+", logged)
    assert [figure for figure in figures if figure not in measured] == []
