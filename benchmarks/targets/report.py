"""The measured figures as a table for people, JSON for programs, and plots."""

from __future__ import annotations

import json
import os
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks.targets.judge import JOBWIRE, LABELS, SIDEKIQ, YJIT, TargetVerdict, judge
from benchmarks.targets.rows import TARGETS, Sample, Target
from benchmarks.targets.stage import SampleServer

__all__ = ["DISTURBED", "Report", "pages", "samples_of", "surroundings", "write"]

DISTURBED = 0.3  # cores that others used: a sample with more is not a figure
BUSY = """

**The machine was busy with other work most of the time.** CPU for each job is reliable
nevertheless, and ratios are roughly right. Rates and latencies are not: a calm machine is
better."""
PLOTS = (
    ("drain", "no-op jobs drained a second, 1 process"),
    ("failing", "raising jobs stored for retry a second"),
    ("scheduled", "due scheduled jobs promoted and run a second"),
    ("one", "jobs enqueued one by one a second"),
)
WIDTH, LABEL, VALUE, ROW, TITLE = 720, 170, 90, 30, 40  # pixels
HEAD = """\
# Targets and measured figures

Made by `make bench ARGS='targets --peers --out docs/performance'`, not by hand; all samples are in
[results.json](results.json). [Performance](../explanation/performance.md) explains the figures.

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

    def repeats(self) -> str:
        """Return the number of samples of a median, as text."""
        counts = Counter((sample["run"], sample["team"]) for sample in self.samples).values()
        least, most = min(counts, default=0), max(counts, default=0)
        if most == 1:
            return "1 sample"
        return f"{most} samples" if least == most else f"{least} to {most} samples"

    def verdict(self, target: Target) -> TargetVerdict | None:
        """Return the verdict on a target; None if it was not measured."""
        figures = self.of(target.kind, target.figure)
        medians = {unversioned(team): statistics.median(values) for team, values in figures.items()}
        return judge(target.bars, target.sense, medians)

    def table(self) -> str:
        """Return the targets in Markdown."""
        shown = self.columns()
        lines = [
            f"| | figure | {' | '.join(shown.values())} | target | reached |",
            f"| --- | --- |{' --- |' * len(shown)} --- | --- |",
        ]
        for target in TARGETS:
            figures = self.of(target.kind, target.figure)
            if figures:
                lines.append(
                    f"| {target.number} | {title(target)} | {cells(figures, shown, spread)} "
                    f"| {target.aim} | {self.verdict(target) or ''} |"
                )
        return "\n".join(lines) + "\n"

    def columns(self) -> dict[str, str]:
        """Return the teams that the targets are about, by their names, and their headings."""
        names = dict.fromkeys(sample["team"] for sample in self.samples)
        wanted = (JOBWIRE, SIDEKIQ, YJIT)
        known = {unversioned(name): name for name in names}
        return {known[word]: LABELS.get(word, word) for word in wanted if word in known}

    def cpu(self) -> str:
        """Return the CPU of the workers for a job, in Markdown; other programs change it little."""
        shown = self.columns()
        lines = [
            f"| CPU of the workers, µs a job | {' | '.join(shown.values())} |",
            f"| --- |{' --- |' * len(shown)}",
        ]
        titles = {
            "drain": "no-op jobs, 1 process",
            "logged": "no-op jobs, with their log",
            "processes": "no-op jobs, 2 processes",
            "failing": "jobs that raise",
            "scheduled": "scheduled jobs, promoted and run",
        }
        for kind, what in titles.items():
            if figures := self.of(kind, "cpu_us"):
                lines.append(f"| {what} | {cells(figures, shown, spread)} |")
        return "\n".join(lines) + "\n" if len(lines) > 2 else ""

    def others(self) -> str:
        """Return the figures of all teams, in Markdown, if there are others than Sidekiq."""
        names = dict.fromkeys(sample["team"] for sample in self.samples)
        ours = self.columns()
        shown = {name: name for name in names if unversioned(name) != "other checkout"}
        if not shown.keys() - ours.keys():
            return ""
        lines = [
            f"| | figure | {' | '.join(shown)} |",
            f"| --- | --- |{' --- |' * len(shown)}",
        ]
        for target in TARGETS:
            figures = self.of(target.kind, target.figure)
            if figures.keys() & (shown.keys() - ours.keys()) and len(figures) > 1:
                row = cells(figures, shown, lambda values: spread(values, "<br>"))
                lines.append(f"| {target.number} | {title(target)} | {row} |")
        return "\n".join(lines) + "\n"


def unversioned(team: str) -> str:
    """Return a team's name without its version."""
    return " ".join(word for word in team.split() if not word[0].isdigit())


def title(target: Target) -> str:
    """Return the title of a target with its unit."""
    return f"{target.title}{f', {target.unit}' if target.unit else ''}"


def cells(
    found: Mapping[str, list[float]],
    shown: Iterable[str],
    text: Callable[[list[float]], str],
) -> str:
    """Return the samples of some teams as cells of a row."""
    return " | ".join(text(found[name]) if name in found else "" for name in shown)


def number(value: float) -> str:
    """Return a figure with three digits that count, or whole."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value else "0"


def spread(values: list[float], space: str = " ") -> str:
    """Return the median, and from where to where the samples go."""
    middle = number(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle}{space}({number(min(values))} to {number(max(values))})"


def surroundings(stage: SampleServer, rubies: Mapping[str, str], *, minutes: int) -> dict[str, Any]:
    """Return what the figures come from; `rubies` by teams, `minutes` that it took."""
    info = stage.client.info("server")
    return {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cores": os.cpu_count(),
        "server": f"{info.get('server_name', 'redis')} "
        f"{info.get('valkey_version') or info['redis_version']}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        **({"rubies": dict(rubies)} if rubies else {}),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "program": sys.argv[1:],
        "minutes": minutes,
    }


def write(directory: Path, report: Report, around: Mapping[str, Any]) -> None:
    """Write results.json and the pages that are made from it."""
    directory.mkdir(exist_ok=True)
    results = {"surroundings": around, "rows": _rows(report.samples)}
    (directory / "results.json").write_text(_json(results))
    for name, text in pages(results).items():
        (directory / name).write_text(text)


def pages(results: Mapping[str, Any]) -> dict[str, str]:
    """Return targets.md and the plots, by their names, from the content of results.json."""
    report, around = Report(), results["surroundings"]
    report.samples = samples_of(results["rows"])
    calm = 1 - report.disturbed()
    parts = [
        HEAD,
        f"Median (least to most) of {report.repeats()}. {around['cores']} virtual cores, ",
        f"on which everything ran; {around['server']}, {around['python']}, {around['system']}, ",
        f"{around['date']}. ",
        f"During {calm:.0%} of the samples, other programs used less than {DISTURBED} cores.",
        *(f" {team} ran on {ruby}." for team, ruby in around.get("rubies", {}).items()),
        "" if calm >= 0.5 else BUSY,
        "\n\n",
        report.table(),
    ]
    if cpu := report.cpu():
        parts += ["\n", cpu]
    if others := report.others():
        parts += [
            "\n## Comparison with other queues\n\nMedian (least to most). ",
            "[Performance](../explanation/performance.md) explains the settings.\n\n",
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


def _rows(samples: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each run and team, with a list for each figure."""
    rows: dict[tuple[str, ...], dict[str, Any]] = {}
    for sample in samples:
        row = rows.setdefault(
            (sample["run"], sample["team"], *sample), {"run": sample["run"], "team": sample["team"]}
        )
        for figure, value in sample.items():
            if figure not in ("run", "team"):
                row.setdefault(figure, []).append(value)
    return [*rows.values()]


def samples_of(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return the samples of the rows of results.json."""
    samples = []
    for row in rows:
        figures = {name: values for name, values in row.items() if name not in ("run", "team")}
        for values in zip(*figures.values(), strict=True):
            sample = dict(zip(figures, values, strict=True))
            samples.append({"run": row["run"], "team": row["team"], **sample})
    return samples


def _json(whole: Mapping[str, Any]) -> str:
    """Return JSON with a line for each run and team, for diffs."""
    around = ",\n    ".join(
        f"{json.dumps(name)}: {json.dumps(value)}" for name, value in whole["surroundings"].items()
    )
    rows = ",\n    ".join(json.dumps(row) for row in whole["rows"])
    return f'{{\n  "surroundings": {{\n    {around}\n  }},\n  "rows": [\n    {rows}\n  ]\n}}\n'


def bars(title: str, samples: Mapping[str, Sequence[float]]) -> str:
    """Return a picture as SVG: a bar to the median for each name, a line from least to most."""
    room = WIDTH - LABEL - VALUE
    scale = room / max(max(values) for values in samples.values())
    height = TITLE + ROW * len(samples) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        'font-family="sans-serif" font-size="13">',
        f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
        f'<text x="10" y="24" font-size="15" font-weight="bold">{escape(title)}</text>',
    ]
    for index, (name, values) in enumerate(samples.items()):
        top = TITLE + ROW * index
        middle = statistics.median(values)
        least, most = (LABEL + scale * end for end in (min(values), max(values)))
        color = "#2266aa" if index == 0 else "#999999"
        parts.append(
            f'<text x="{LABEL - 8}" y="{top + 17}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="{LABEL}" y="{top + 4}" width="{scale * middle:.1f}" height="18" '
            f'fill="{color}"/>'
            f'<path d="M{least:.1f} {top + 13}H{most:.1f}" stroke="black" stroke-width="1.5"/>'
            f'<text x="{max(most, LABEL) + 6:.1f}" y="{top + 17}">{middle:,.0f}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])
