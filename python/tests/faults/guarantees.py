"""docs/explanation/guarantees.md: what was found out, as a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from jobwire.application.config import FetchMode
from tests.faults.runs import FAULTS, FEW, Result
from tests.faults.scenarios import SCENARIOS, Scenario

__all__ = ["CELLS", "PAGE", "introduction", "render", "rows"]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "guarantees.md"

KEPT, TWICE, LOST, EITHER, ELSEWHERE = "kept", "kept, may run twice", "lost", "may be lost", "-"
CELLS = {
    KEPT: "every job is finished, or dead for its own reason; each ran as often as called for",
    TWICE: "the same, but a job ran once more than called for",
    LOST: "a job was lost",
    EITHER: "in some runs a job was lost: it depends on what else was going on",
    ELSEWHERE: "the process did not get there in that run",
}
_MODES: dict[FetchMode, str] = {
    "reliable": "## Reliable fetch",
    "basic": "## Basic fetch",
}
_SAYS: dict[FetchMode, str] = {
    "reliable": """\
Nothing is lost, stuck or invented at any point.

A job runs twice in one case only: its process was killed after the job's last line and before
its outcome was stored. The job is then still in the private hash of the dead process, so it is
recovered and run again. Nothing on this side of the job can know that it had ended; whoever
cannot bear it makes the job idempotent. The tests accept a second run only for jobs that the
killed process held and that had ended.""",
    "basic": """\
BRPOP, as Sidekiq does it: from the reply of the fetch to the storing of the outcome a job is in the
memory of one process (LW-1). Jobs are lost when that process is killed meanwhile, wherever it is,
and when the connection ends between BRPOP and its reply; nowhere else. Promotion and pushes are the
same as above. A retry whose ZADD was carried out but not answered is stored again, as is a job that
a stopping worker puts back with RPUSH, and may then run twice.""",
}


def introduction() -> str:
    """Return what stands before the tables."""
    legend = "\n".join(f"| {cell} | {meaning} |" for cell, meaning in CELLS.items())
    return f"""\
# What a crash at every command does

Made by `make faults ARGS=--write`, not by hand.

A real process works behind a proxy that sees every command on its way to Redis. Once it works
undisturbed, so that its commands are known. Then it works again for every single command and
every one of these, at exactly this command:

- **cut before**, **cut after**: the connection ends before the server sees the command; or after
  it was carried out, but before the answer
- **OOM**, **READONLY**: the server refuses the command: out of memory; after a failover
- **kill before**, **kill after**: the process is killed with signal 9, the command not seen, or
  carried out and not answered

Then the lease of a process that is gone is ended by hand, to save a minute; a healthy worker
finishes what is there; and the jobs are counted, in Redis and in a record that the jobs
themselves keep elsewhere. A process that was not killed has to come to its senses alone.
`make test` does this for commands that change something, `make faults` for all.

| outcome | meaning |
| --- | --- |
{legend}

A row stands for all commands of that name in the scenario. Of a command that a worker repeats for
as long as it lives the first {FEW} are struck, of scripts all. `SCRIPT LOAD` and the first call
of each script belong together: the servers are new and know no scripts. Pauses between two
tries are shortened. What `make chaos` does, at random and for as long as you like, is beyond
these tables: several faults at once, paused processes, a Redis that is restarted or killed.
"""


def render(results: Iterable[Result]) -> str:
    """Return the page."""
    every = list(results)
    parts = [introduction()]
    for fetch, heading in _MODES.items():
        mine = [result for result in every if result.fetch == fetch]
        parts += [heading, "", _SAYS[fetch], "", *_summary(mine), ""]
        for scenario in SCENARIOS.values():
            found = [result for result in mine if result.scenario == scenario.name]
            if found:
                parts += [*_table(scenario, found), ""]
    return "\n".join(parts).rstrip() + "\n"


def rows(page: str) -> dict[tuple[FetchMode, str], dict[str, list[str]]]:
    """Return the cells of a page: by mode and scenario, then by command."""
    found: dict[tuple[FetchMode, str], dict[str, list[str]]] = {}
    mode: FetchMode = "reliable"
    scenario = ""
    for line in page.splitlines():
        if line == _MODES["basic"]:
            mode = "basic"
        elif heading := re.fullmatch(r"### (.+)", line):
            scenario = heading[1]
        elif scenario and (cells := re.fullmatch(r"\| `(.+?)` \| (.+) \|", line)):
            found.setdefault((mode, scenario), {})[cells[1]] = cells[2].split(" | ")
    return found


def _summary(results: Sequence[Result]) -> Iterator[str]:
    yield "| scenario | runs with a fault | lost | stuck | invented | ran twice |"
    yield "| --- | --- | --- | --- | --- | --- |"
    for name in SCENARIOS:
        runs = [result for result in results if result.scenario == name and result.reached]
        if runs:
            counts = (
                len(runs),
                sum(bool(run.lost) for run in runs),
                sum(bool(run.stuck) for run in runs),
                sum(bool(run.invented) for run in runs),
                sum(bool(run.duplicates) for run in runs),
            )
            yield f"| {name} | {' | '.join(map(str, counts))} |"


def _table(scenario: Scenario, results: Sequence[Result]) -> Iterator[str]:
    yield f"### {scenario.name}"
    yield ""
    yield f"{scenario.title[0].upper()}{scenario.title[1:]}."
    yield ""
    yield f"| command | {' | '.join(FAULTS)} |"
    yield f"| --- |{' --- |' * len(FAULTS)}"
    for label in dict.fromkeys(result.point.label for result in results if result.point):
        mine = [result for result in results if result.point and result.point.label == label]
        cells = [_cell([run for run in mine if run.fault == fault]) for fault in FAULTS]
        yield f"| `{label}` | {' | '.join(cells)} |"


def _cell(runs: Sequence[Result]) -> str:
    reached = [run for run in runs if run.reached]
    if not reached:
        return ELSEWHERE
    if any(run.lost for run in reached):
        return LOST if all(run.lost for run in reached) else EITHER
    return TWICE if any(run.duplicates for run in reached) else KEPT
