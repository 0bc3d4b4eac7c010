"""Runs of spin: a search through all states, or for the shortest way to a mistake."""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.model.plan import MODEL, Configuration, Mistake

__all__ = ["ModelError", "Search", "Trail", "find", "search"]

MEMORY_MB = 3800
SEARCH_TIMEOUT_S = 900
_DEPTH = 100_000  # steps; a search that needs more says so, and fails

_STATES = re.compile(r"^\s*(\d+) states, stored", re.MULTILINE)
_DEPTH_AND_ERRORS = re.compile(r"depth reached (\d+), errors: (\d+)")
_VIOLATED = re.compile(r"assertion violated \(?(\w+)")
_UNREACHED = re.compile(r"^\t(\S+?\.pml):(\d+), state \d+, \"(.*)\"$", re.MULTILINE)


class ModelError(Exception):
    """Spin, the compiler or the search failed, or a search was not complete."""


class Search(NamedTuple):
    """The result of a search.

    Attributes:
        states: How many were visited.
        depth: Steps of the longest history.
        violated: The property that failed; "" if none did.
        unreached: Statements that no history reached: file, line, text.
        seconds: CPU time, compilation included.
        story: The steps to the violation, one a line.
    """

    states: int
    depth: int
    violated: str
    unreached: frozenset[tuple[str, str, str]]
    seconds: float
    story: Sequence[str] = ()


class Trail(NamedTuple):
    """The shortest history in which a mistake shows."""

    mistake: Mistake
    search: Search


def search(configuration: Configuration) -> Search:
    """Visit every state of a configuration."""
    return _run(configuration.definitions, liveness=configuration.is_liveness)


def find(mistake: Mistake) -> Search:
    """Look for the shortest history in which a planted mistake shows."""
    definitions = (*mistake.definitions, mistake.name)
    if mistake.found_by == "settles":  # a history without an end; the first one will do
        return _run((*definitions, "LIVENESS"), liveness=True)
    # Breadth first. Spin refuses hidden variables there, so they become visible.
    return _run((*definitions, "hidden="), shortest=True)


def _run(definitions: Sequence[str], *, liveness: bool = False, shortest: bool = False) -> Search:
    began = _cpu_time()
    with TemporaryDirectory(prefix="jobwire-model-") as name:
        directory = Path(name)
        for path in MODEL.glob("*.pml"):
            shutil.copy(path, directory)
        options = [f"-D{definition}" for definition in definitions]
        _call(directory, "spin", *options, "-a", "reliable.pml")
        compile_options = [f"-DMEMLIM={MEMORY_MB}", "-DCOLLAPSE", "-DVECTORSZ=2048"]
        if not liveness:
            compile_options.append("-DSAFETY")
        if shortest:
            compile_options.append("-DBFS")
        # Mistakes show soon, so the time to compile counts more.
        level = "-O1" if shortest else "-O2"
        _call(directory, "gcc", "-w", level, *compile_options, "-o", "pan", "pan.c")
        mode = ["-a"] if liveness else []
        report = _call(directory, "./pan", *mode, f"-m{_DEPTH}", "-w25")
        result = _read(report, liveness=liveness)
        if result.violated:
            story = _call(directory, "spin", *options, "-T", "-t", "reliable.pml")
            result = result._replace(story=_story(story))
    return result._replace(seconds=_cpu_time() - began)


def _cpu_time() -> float:
    """Return the seconds that all children so far have used."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _read(report: str, *, liveness: bool) -> Search:
    """Return the result that a report of pan states."""
    counts, states = _DEPTH_AND_ERRORS.search(report), _STATES.search(report)
    problem = re.search(r"max search depth too small|out of memory|memory limit", report)
    if counts is None or states is None or problem or "Search not completed" in _cut(report):
        raise ModelError(f"the search is not complete:\n{report}")
    violated = ""
    if int(counts[2]):
        name = _VIOLATED.search(report)
        violated = name[1] if name else ("settles" if liveness else "none_stuck")
    unreached = frozenset(
        (file, line, text) for file, line, text in _UNREACHED.findall(report) if text != "-end-"
    )
    return Search(int(states[1]), int(counts[1]), violated, unreached, 0.0)


def _cut(report: str) -> str:
    """Return the report of a search that found nothing; a find ends a search early on purpose."""
    return "" if "errors: 1" in report else report


def _story(replay: str) -> list[str]:
    """Return the steps of a replay, without those of the claim and the variables at its end."""
    lines = (line.strip() for line in replay.splitlines())
    story: list[str] = []
    for line in lines:
        if line.startswith("spin:"):
            if "warning" in line:
                continue
            break
        if line and not line.startswith(("#", "Never claim")):
            story.append(line)
    return story


def _call(directory: Path, *command: str) -> str:
    done = subprocess.run(
        command,
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=SEARCH_TIMEOUT_S,
        check=False,
    )
    text = done.stdout + done.stderr
    # pan and a replay end with other statuses if they find a violation.
    if done.returncode and command[0] in ("spin", "gcc") and "-t" not in command:
        raise ModelError(f"{' '.join(command)}\n{text}")
    return text
