"""What was measured, as a table for people, JSON for programs, and plots."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.targets.plot import bars
from benchmarks.targets.rows import JOBWIRE, SIDEKIQ, TARGETS, Sample, Target
from benchmarks.targets.stage import Stage

__all__ = ["DISTURBED", "Report", "pages", "surroundings", "write"]

DISTURBED = 0.3  # cores that others used: a sample with more is no figure
BUSY = """

**The machine was busy with other things, most of the time.** CPU for each job holds all the same,
ratios by and large, rates and latencies do not: they are what a calm machine exceeds."""
PLOTS = (
    ("drain", "no-op jobs drained a second, 1 process"),
    ("failing", "raising jobs stored for retry a second"),
    ("scheduled", "due scheduled jobs promoted and run a second"),
    ("one", "jobs enqueued one by one a second"),
)
HEAD = """\
# Targets, and what was measured

Made by `make bench ARGS='targets --peers --out docs/performance'`, not by hand; all samples are in
[results.json](results.json). What the figures say, and what not: [performance](../performance.md).

"""


class Report:
    """Samples by run and team."""

    def __init__(self) -> None:
        self.samples: list[dict[str, Any]] = []

    def add(
        self, kind: str, team: str, jobs: int, found: Sample, seen: Mapping[str, float]
    ) -> None:
        """Take note of a sample."""
        figures = {name: round(value, 4) for name, value in found.items()}
        self.samples.append({"run": kind, "team": team, "jobs": jobs, **figures, **seen})

    def of(self, kind: str, figure: str) -> dict[str, list[float]]:
        """Return the samples of a figure by team, in the order of the teams."""
        found: dict[str, list[float]] = {}
        for sample in self.samples:
            if sample["run"] == kind and figure in sample:
                found.setdefault(sample["team"], []).append(sample[figure])
        return found

    def disturbed(self) -> float:
        """Return the share of the samples that were taken on a machine that did other things."""
        taken = [float(sample["others"]) for sample in self.samples]
        return sum(others > DISTURBED for others in taken) / max(len(taken), 1)

    def verdict(self, target: Target) -> bool | None:
        """Say whether a target is reached; None if it was not measured."""
        medians: dict[str, dict[str, float]] = {}
        for sample in self.samples:
            if sample["run"] == target.kind:
                medians.setdefault(sample["team"].partition(" ")[0], {})
        for word, figures in medians.items():
            for team, values in self.of(target.kind, target.figure).items():
                if team.startswith(word):
                    figures[target.figure] = statistics.median(values)
        if target.figure not in medians.get(JOBWIRE, {}):
            return None
        return target.holds(medians)

    def table(self) -> str:
        """Return the targets in Markdown."""
        lines = [
            "| | what | jobwire | Sidekiq | target | reached |",
            "| --- | --- | --- | --- | --- | --- |",
        ]
        for target in TARGETS:
            found = self.of(target.kind, target.figure)
            if not found:
                continue
            cells = [
                next((spread(each) for name, each in found.items() if name.startswith(team)), "")
                for team in (JOBWIRE, SIDEKIQ)
            ]
            verdict = {True: "yes", False: "**no**", None: ""}[self.verdict(target)]
            what = f"{target.title}{f', {target.unit}' if target.unit else ''}"
            lines.append(
                f"| {target.number} | {what} | {' | '.join(cells)} | {target.aim} | {verdict} |"
            )
        return "\n".join(lines) + "\n"

    def cpu(self) -> str:
        """Return what a job costs the workers, in Markdown: little depends on what others do."""
        lines = ["| CPU of the workers, µs a job | jobwire | Sidekiq |", "| --- | --- | --- |"]
        titles = {
            "drain": "no-op jobs, 1 process",
            "logged": "no-op jobs, with their log",
            "processes": "no-op jobs, 2 processes",
            "failing": "jobs that raise",
            "scheduled": "scheduled jobs, promoted and run",
        }
        for kind, title in titles.items():
            found = self.of(kind, "cpu_us")
            cells = [
                next((spread(each) for name, each in found.items() if name.startswith(team)), "")
                for team in (JOBWIRE, SIDEKIQ)
            ]
            if found:
                lines.append(f"| {title} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n" if len(lines) > 2 else ""

    def others(self) -> str:
        """Return what other teams did, in Markdown."""
        names = dict.fromkeys(sample["team"] for sample in self.samples)
        shown = [name for name in names if name.partition(" ")[0] != "other"]
        if len(shown) <= 2:
            return ""
        lines = [f"| | what | {' | '.join(shown)} |", f"| --- | --- |{' --- |' * len(shown)}"]
        for target in TARGETS:
            found = self.of(target.kind, target.figure)
            if len(found.keys() - set(shown[:2])) and len(found) > 1:
                what = f"{target.title}{f', {target.unit}' if target.unit else ''}"
                cells = (number(statistics.median(found[n])) if n in found else "" for n in shown)
                lines.append(f"| {target.number} | {what} | {' | '.join(cells)} |")
        return "\n".join(lines) + "\n"


def number(value: float) -> str:
    """Return a figure with three digits that count, or whole."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value else "0"


def spread(values: list[float]) -> str:
    """Return the median, and from where to where the samples go."""
    middle = number(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({number(min(values))} to {number(max(values))})"


def surroundings(stage: Stage) -> dict[str, Any]:
    """Return what the figures come from."""
    info = stage.client.info("server")
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": os.cpu_count(),
        "server": f"{info.get('server_name', 'redis')} "
        f"{info.get('valkey_version') or info['redis_version']}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "program": sys.argv[1:],
    }


def write(directory: Path, report: Report, around: Mapping[str, Any]) -> None:
    """Write results.json and what is made from it."""
    directory.mkdir(exist_ok=True)
    results = {"surroundings": around, "samples": report.samples}
    (directory / "results.json").write_text(_json(results))
    for name, text in pages(results).items():
        (directory / name).write_text(text)


def pages(results: Mapping[str, Any]) -> dict[str, str]:
    """Return targets.md and the plots, by their names, from what results.json holds."""
    report, around = Report(), results["surroundings"]
    report.samples = list(results["samples"])
    calm = 1 - report.disturbed()
    parts = [
        HEAD,
        f"Median (least to most). {around['cores']} virtual cores, on which everything ran; ",
        f"{around['server']}, {around['python']}, {around['system']}, {around['date']}. ",
        f"While {calm:.0%} of the samples were taken, others used less than {DISTURBED} cores.",
        "" if calm >= 0.5 else BUSY,
        "\n\n",
        report.table(),
    ]
    if cpu := report.cpu():
        parts += ["\n", cpu]
    if others := report.others():
        parts += [
            "\n## Beside other queues\n\nMedians; settings and what they mean: ",
            "[performance](../performance.md).\n\n",
            others,
        ]
    found: dict[str, str] = {}
    for kind, title in PLOTS:
        rates = {
            name: values
            for name, values in report.of(kind, "rate").items()
            if not name.startswith("other ")
        }
        if len(rates) > 1:
            found[f"{kind}.svg"] = bars(title, rates)
            parts.append(f"\n![{title}]({kind}.svg)\n")
    return {"targets.md": "".join(parts), **found}


def _json(whole: Mapping[str, Any]) -> str:
    """Return JSON with one sample a line, for diffs."""
    samples = ",\n    ".join(json.dumps(each) for each in whole["samples"])
    around = json.dumps(whole["surroundings"], indent=2).replace("\n", "\n  ")
    return f'{{\n  "surroundings": {around},\n  "samples": [\n    {samples}\n  ]\n}}\n'
