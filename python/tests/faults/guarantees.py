"""docs/explanation/guarantees.md: the results of the fault runs, as a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jobwire.application.config import FetchMode
from tests.faults.runs import FEW, Result
from tests.faults.scenarios import SCENARIOS

__all__ = ["PAGE", "introduction", "render", "rows", "with_figures"]

PAGE = Path(__file__).resolve().parents[3] / "docs" / "explanation" / "guarantees.md"

_MODES: dict[FetchMode, str] = {
    "reliable": "## Reliable fetch",
    "basic": "## Basic fetch",
}
_SAYS: dict[FetchMode, str] = {
    "reliable": """\
No fault loses a job, leaves it stuck or invents one.

A job runs twice in one case only: its process is killed after the last line of the job and before
its outcome is stored. The job is then still in the private hash of the dead process, so another
worker recovers it and runs it again. A queue cannot know that the job had ended. A job that must
not run twice has to be idempotent. The tests accept a second run only for jobs that the killed
process held and that had ended.""",
    "basic": """\
Basic fetch uses BRPOP, as Sidekiq does. From the reply of the fetch to the storing of the outcome,
a job exists only in the memory of one process (LW-1). Two faults lose jobs: the process is killed
in this time, or the connection ends between BRPOP and its reply. No other fault loses a job.
Promotion and pushes work as they do with reliable fetch. A retry whose ZADD took effect but got no
reply is stored again, and so is a job that a stopping worker puts back with RPUSH. Such a job may
run twice.""",
}
_COLUMNS = ("scenario", "scripts", "runs with a fault", "lost", "stuck", "invented", "ran twice")
CHAOS, MIXED = "Chaos", "Mixed fleet"
_FIGURES = {
    CHAOS: """\
Made by `.ci/release-check chaos --seconds 600 --seed 1 --jobs 100000 --write`, a column a seed.

Four workers run jobs while the faults of the introduction happen at random. `overdue` counts jobs
that stayed in flight for more than two heartbeats of a process that lived and did not run them.
Every second run has a reason: the job was pushed again because no reply came, a snapshot or a
replica brought the job back, or the process that ran it first was killed, paused or stopped.
""",
    MIXED: """\
Made by `.ci/release-check mixed --seconds 900 --rate 112 --seed 1 --write`, a column a seed.

Two processes of Sidekiq, with Active Job, unique jobs and sidekiq-cron, and two of jobwire serve
one Redis. Both languages enqueue for both. Every 5 s a process is killed. Rolling deploys of either
language, in Ruby also from Sidekiq 7.3 to 8.1, add a class and take it back. Sidekiq acknowledges a
job before it runs it: only jobs that a killed process of Sidekiq held, or took at that moment, are
lost. No job runs in a process that has not announced its class, none that never raised is retried,
and no parked job, lock or tick is left. A second end has a process that was killed first.
""",
}


def introduction() -> str:
    """Return the text before the tables."""
    return f"""\
# Guarantees under a fault at every command

Made by `.ci/release-check faults --write`, not by hand.

The tests run a real process behind a proxy that sees every command on its way to Redis. The first
run has no faults and records the commands. Then the process runs again for every recorded command
and every one of these faults, which strikes at exactly this command:

- **cut before**: the connection ends before the server sees the command
- **cut after**: the connection ends after the command took effect and before its reply
- **OOM**: the server refuses the command because it is out of memory
- **READONLY**: the server refuses the command after a failover
- **kill before**: signal 9 kills the process before the server sees the command
- **kill after**: signal 9 kills the process after the command took effect and before its reply

If the process is gone, the test ends its lease, which saves a minute. Then a healthy worker runs
the jobs that are left, and the test counts all jobs, in Redis and in a record that the jobs keep in
another place. A process that was not killed has to recover without help. `make check` injects
faults into commands that change data, `.ci/release-check faults` into all commands.

A row counts the runs of a scenario, one for each command and fault that the process came to, and
those in which a job was lost or the like. It names the scripts among the commands. Scripts have
faults at every call. A command that a worker repeats all the time has faults at its first {FEW}
calls. Pauses between two tries are shortened.

`.ci/release-check chaos` goes further: it combines faults at random for any length of time, pauses
processes, restarts or kills Redis, restarts it from a snapshot or promotes a replica, which forget
acknowledged writes, delays single messages by up to two leases, damages the set of owners, and runs
jobs that end the event loop or cancel all tasks. It fails if a job stays in flight for more than
two heartbeats of a process that lives and does not run it.

These runs do not refuse single commands by an ACL. There, each script adds a job before it removes
it, and asks first whether it may remove or trim ([section 19.1](../../spec/reliable.md)). So a user
without one command loses no job, and the error names the command and the rule of `ACL SETUSER` that
allows it. With servers before Redis 7.0, `fetch` cannot ask, and only complete rules protect it.
"""


def render(results: Iterable[Result], page: str) -> str:
    """Return the page with the results.

    Args:
        results: Of all runs of some scenarios.
        page: The page as it was. The rows of other scenarios and the section about chaos stay.
    """
    every, known = list(results), rows(page)
    parts = [introduction()]
    for fetch, heading in _MODES.items():
        parts += [heading, "", _SAYS[fetch], "", _line(_COLUMNS), "| --- " * len(_COLUMNS) + "|"]
        for name, scenario in SCENARIOS.items():
            found = [each for each in every if (each.fetch, each.scenario) == (fetch, name)]
            if found:
                parts.append(_line([f"{name}: {scenario.title}", *_cells(found)]))
            elif (fetch, name) in known and scenario.means_anything(fetch):
                parts.append(_line([f"{name}: {scenario.title}", *known[fetch, name]]))
        parts.append("")
    return "\n".join([*parts, _all_figures(page)]).rstrip() + "\n"


def _line(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def with_figures(page: str, title: str, seed: int, figures: Mapping[str, object]) -> str:
    """Return the page with the figures of one run, which replace those of its seed.

    Args:
        page: The page as it was.
        title: Section of the page.
        seed: Head of the column.
        figures: Title of the row to value.
    """
    section = _section(page, title)
    lines = [line.strip("| ").split(" | ") for line in section.splitlines() if line[:1] == "|"]
    columns = {}
    if lines and [line[0] for line in lines[2:]] == [*figures]:  # otherwise an older form
        for number, head in enumerate(lines[0][1:], 1):
            columns[int(head.removeprefix("seed "))] = [line[number] for line in lines[2:]]
    columns[seed] = [str(value) for value in figures.values()]
    seeds = sorted(columns)
    table = [["figure", *(f"seed {seed}" for seed in seeds)], ["---"] * (len(seeds) + 1)]
    for number, row in enumerate(figures):
        table.append([row, *(columns[seed][number] for seed in seeds)])
    text = "\n".join([_FIGURES[title], *map(_line, table)])
    parts = {each: _section(page, each) for each in _FIGURES} | {title: f"\n{text}\n"}
    before = page.removesuffix(_all_figures(page)).rstrip()
    figures_of = (f"\n## {each}\n{part}" for each, part in parts.items() if part)
    return f"{before}\n{''.join(figures_of)}"


def _section(page: str, title: str) -> str:
    """Return what follows the heading, up to the next one, with one line break at its end."""
    section = page.partition(f"\n## {title}\n")[2]
    section = re.split(r"^## ", section, maxsplit=1, flags=re.MULTILINE)[0].rstrip()
    return f"{section}\n" if section else ""


def _all_figures(page: str) -> str:
    start = page.find(f"## {next(iter(_FIGURES))}\n")
    return page[start:] if start >= 0 else ""


def rows(page: str) -> dict[tuple[FetchMode, str], list[str]]:
    """Return the other cells of each row of a page, by mode and scenario."""
    found: dict[tuple[FetchMode, str], list[str]] = {}
    for fetch, heading in _MODES.items():
        for line in _section(page, heading.removeprefix("## ")).splitlines():
            first, *cells = line.strip("| ").split(" | ")
            name = first.partition(":")[0]
            if name in SCENARIOS and len(cells) == len(_COLUMNS) - 1:
                found[fetch, name] = cells
    return found


def _cells(results: Sequence[Result]) -> list[str]:
    """Return the cells of a scenario: its scripts, then the numbers of runs."""
    runs = [result for result in results if result.reached]
    labels = dict.fromkeys(run.point.label for run in runs if run.point)
    counts = (
        len(runs),
        sum(bool(run.lost) for run in runs),
        sum(bool(run.stuck) for run in runs),
        sum(bool(run.invented) for run in runs),
        sum(bool(run.duplicates) for run in runs),
    )
    scripts = ", ".join(f"`{label}`" for label in labels if label.endswith(".lua"))
    return [scripts or "none", *map(str, counts)]
