"""Runs of the conformance suite on the reference under load: a red check is a defect of the suite.

Each reply of Redis is held back for a random time, as on a slow network, so that commands of one
process interleave in other ways than on an idle machine. The number of sandboxes changes from run
to run.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import cast

from rich.console import Console

from jobwire_conformance import config, reports
from jobwire_conformance.cases import case as cases
from jobwire_conformance.cases.case import Case
from jobwire_conformance.reports.results import Results
from jobwire_conformance.run import run, verdicts

__all__ = ["SANDBOXES", "Red", "red_table", "runs_of_suite"]

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "conformance" / "drivers" / "python"
SANDBOXES = 1, 2, 4


@dataclass(frozen=True, slots=True)
class Red:
    """A check that failed.

    Attributes:
        sandboxes: The number of sandboxes of the run.
        case: The case of the check.
        requirement: The requirement of the check.
        message: The expected and the seen value.
    """

    sandboxes: int
    case: str
    requirement: str
    message: str


def runs_of_suite(
    runs: int,
    out: Console,
    kept: Path,
    *,
    beside: int,
    pause: float,
    settings: str,
    names: Sequence[str],
) -> tuple[list[Red], Counter[int]]:
    """Run the suite on the reference.

    Args:
        runs: The number of runs.
        out: Receives a line for each run and each red check.
        kept: The directory for the reports of runs with red checks.
        beside: The number of runs at a time, which are load for each other.
        pause: The longest time for which a reply is held back, in seconds.
        settings: The settings of the reference, like `conformance.toml`.
        names: Patterns of the cases to run; nothing for all.

    Returns:
        The red checks, and the number of runs for each number of sandboxes.
    """
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    os.environ["PYTHONPATH"] = str(ROOT / "python")
    counts = Counter(_sandboxes(number) for number in range(1, runs + 1))
    reds: list[Red] = []
    _chosen(settings, names)
    one = partial(
        _run_of_suite, runs=runs, kept=kept, pause=pause, settings=settings, names=tuple(names)
    )
    # Each run has a process of its own: the judge of one must not wait for another's.
    with multiprocessing.get_context("spawn").Pool(beside, maxtasksperchild=1) as pool:
        results = pool.imap_unordered(one, range(1, runs + 1))
        for ended, (found, line) in enumerate(results, start=1):
            out.print(f"{ended} ended: {line}", markup=False)
            for red in found:
                out.print(f"    {red.case}#{red.requirement}: {red.message}", markup=False)
            reds += found
    return reds, counts


def _chosen(settings: str, names: Sequence[str]) -> tuple[config.Config, Sequence[Case]]:
    implementation = config.load(REFERENCE / settings)
    offered = run.offered(cases.load(names=names), implementation)
    chosen = run.chosen(offered, implementation.claims, implementation.generation)
    if not chosen:
        raise SystemExit(f"no case of the reference matches {' '.join(names)}")
    return implementation, chosen


def _run_of_suite(
    number: int, *, runs: int, kept: Path, pause: float, settings: str, names: Sequence[str]
) -> tuple[list[Red], str]:
    """Run the suite once; return its red checks, and a line about it."""
    implementation, chosen = _chosen(settings, names)
    sandboxes = _sandboxes(number)
    title = f"run {number} of {runs}, {sandboxes} sandboxes"
    jitter = random.Random(number)
    began = time.monotonic()
    outcome = run.run(
        implementation,
        chosen,
        (),
        watcher=_Watcher(Console(highlight=False, soft_wrap=True), title, len(chosen)),
        sandboxes=sandboxes,
        seed=number,
        trace=(directory := _directory(kept, number)) / "trace.jsonl",
        pause=partial(jitter.uniform, 0, pause) if pause else None,
    )
    found = [
        Red(sandboxes, verdict.case, verdict.requirement, verdict.finding.message)
        for verdict in {
            (verdict.case, verdict.requirement): verdict
            for verdict in outcome.verdicts
            if verdict.status in verdicts.FAILURES and verdict.finding.blocked_by is None
        }.values()
    ]
    found += [Red(sandboxes, "(run)", type(error).__name__, str(error)) for error in outcome.errors]
    seconds, load = time.monotonic() - began, os.getloadavg()[1]
    if found:
        results = cast(Results, outcome.as_data())
        reports.write_results(directory, results)
    else:
        (directory / "trace.jsonl").unlink()
        directory.rmdir()
    return found, f"{title}: {len(found)} red, {seconds:.0f} s, load {load:.0f}"


def _sandboxes(number: int) -> int:
    return SANDBOXES[number % len(SANDBOXES)]


def red_table(reds: Sequence[Red], counts: Counter[int]) -> list[str]:
    """Return a line for each red check, with its number for each number of sandboxes."""
    columns = sorted(counts)
    by_check: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for red in reds:
        by_check[f"{red.case}#{red.requirement}"][red.sandboxes] += 1
    head = "sandboxes" + "".join(f"{column:8d}" for column in columns)
    lines = [head, "runs     " + "".join(f"{counts[column]:8d}" for column in columns)]
    for name, found in sorted(by_check.items(), key=lambda item: (-item[1].total(), item[0])):
        lines.append("         " + "".join(f"{found[c]:8d}" for c in columns) + f"  {name}")
    return lines


def _directory(kept: Path, number: int) -> Path:
    directory = kept / f"run-{number}"
    directory.mkdir()
    return directory


class _Watcher:
    """Shows the progress of a run in one line for each tenth."""

    def __init__(self, out: Console, title: str, cases: int) -> None:
        self._out, self._title, self._cases, self._ended = out, title, cases, 0

    def waiting(self, case: Case, event: str) -> None:
        """Ignore the event."""

    def finished(
        self, case: Case, verdicts: Sequence[verdicts.CaseVerdict], seconds: float
    ) -> None:
        before, self._ended = self._ended, self._ended + 1
        if 10 * before // self._cases < 10 * self._ended // self._cases:
            end = "\r" if self._out.is_terminal else "\n"
            percent = min(100, 100 * self._ended // self._cases)
            self._out.print(f"{self._title}: {percent} %", end=end)
