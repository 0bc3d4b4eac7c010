"""Run the tests of one tier, judge the run, and end with its closing lines.

    python -m tests.gate TIER [PYTEST ARGUMENT]...

TIER is `test`, `check`, or a marker of the release check: interop, browser, full, timing,
real_time, matrix, random. The closing lines are also in build/gate/TIER.txt, and the tests that
wavered in build/gate/wavered.txt.

A test that fails runs once more, alone, when all others have ended; if it passes then, it wavered.
At most five may fail and two waver, and none of a guarantee: a job that is lost once in fifty runs
is what those are for. A test process that ends is a failure of the test that it ran; one may.

Exit status: 0 green, 1 red, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from harness.servers import valkey_program
from tests.tiers import GATE, RELEASE

__all__ = ["Run", "closing_lines", "faults", "read", "second_try", "to_try_again"]

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "build" / "gate"
ALLOWED_SKIPS = ROOT / "python" / "tests" / "allowed_skips.txt"

MAX_SECOND_TRIES = 5
MAX_WAVERED = 2
MAX_CRASHES = 1
# Twice what tiers.py asks: the first test that draws a text pays for a table of characters.
MAX_CPU_S = 4.0

# A hung test ends its worker, with the stacks of all threads. A long one of the release check, such
# as 10,000 transactions of SQLite in test_django_database, takes four minutes on a quiet machine.
_HANG_S = 300
_LONG_HANG_S = 900
# Side by side: tests wait more than they work, and each has servers of its own. Every process
# collects all tests, which takes 7 s of CPU.
_BESIDE = ["-n", "6", "--dist", "worksteal"]
_WORKING = ["-n", "4", "--dist", "worksteal"]
_CHECKING = ["-n", "7", "--dist", "worksteal"]
_ALONE = ["-n", "0"]
_WAITING = ["-n", "5", "--dist", "worksteal"]
# A test of this tier records all fixtures again, which takes minutes.
_RECORDING = [*_BESIDE, "-o", "faulthandler_timeout=1200"]
_OPTIONS = {
    "test": _WORKING,
    "check": _CHECKING,
    "timing": _ALONE,
    "real_time": _WAITING,
    "interop": _RECORDING,
}


@dataclass
class Run:
    """The record of one run of pytest.

    Attributes:
        passed: Number of tests that passed.
        skipped: Reason by test.
        failed: Text of the failure by test.
        crashed: How each worker process ended that did not end in order.
        guarantees: Tests without a second try.
        heavy: Seconds of CPU by test without a marker, where they are too many.
        starters: Command by test without a marker, where it starts a Python process.
        left_out: Tests, files and directories of other tiers.
    """

    passed: int = 0
    skipped: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    crashed: list[str] = field(default_factory=list)
    guarantees: set[str] = field(default_factory=set)
    heavy: dict[str, float] = field(default_factory=dict)
    starters: dict[str, str] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)


def read(lines: Iterable[str]) -> Run:
    """Read the record that the plugin `tests.tiers` wrote."""
    run = Run()
    passed: set[str] = set()
    for line in lines:
        record: dict[str, Any] = json.loads(line)
        if "left_out" in record:
            run.left_out = record["left_out"]
            continue
        if "crashed" in record:
            run.crashed.append(f"the test process {record['crashed']} {_ending(record['status'])}")
            continue
        test = record["test"]
        if record.get("guarantee"):
            run.guarantees.add(test)
        if record["outcome"] == "failed":
            text = record["text"]
            run.failed[test] = f"{run.failed.get(test, '')}{text}\n"
        elif record["outcome"] == "skipped":
            run.skipped[test] = record.get("reason", "")
        elif record["when"] == "call":
            passed.add(test)
        if record["when"] == "teardown" and record.get("tier") == "test":
            if record.get("cpu", 0.0) > MAX_CPU_S:
                run.heavy[test] = record["cpu"]
            if record.get("started"):
                run.starters[test] = record["started"][0]
    run.passed = len(passed - run.failed.keys())
    return run


def to_try_again(run: Run, status: int) -> list[str]:
    """Return the tests that get a second try."""
    few = len(run.failed) <= MAX_SECOND_TRIES
    crashes = len(run.crashed) > MAX_CRASHES
    if status != 1 or crashes or not few or run.failed.keys() & run.guarantees:
        return []
    return [*run.failed]


def second_try(
    run: Run, tests: Sequence[str], tier: str, environment: Mapping[str, str]
) -> dict[str, str]:
    """Run each of the tests alone; return the first error of those that pass now."""
    wavered = {}
    for test in tests:
        click.echo(f"\n=== second try, alone: {test}")
        command = _command(tier, [*_ALONE, "-q", test])
        if subprocess.run(command, cwd=ROOT, env=environment).returncode == 0:
            wavered[test] = run.failed.pop(test)
    return wavered


def faults(run: Run, wavered: Sequence[str], tier: str, allowed: Sequence[str]) -> list[str]:
    """Return what makes the run red besides failed tests, a line each."""
    found = []
    if len(wavered) > MAX_WAVERED:
        found.append(f"{len(wavered)} tests wavered; at most {MAX_WAVERED} may")
    # Only there, because tracing for the coverage of `check` makes some tests several times dearer.
    for test, seconds in run.heavy.items() if tier == "test" else ():
        found.append(
            f"{test} took {seconds:.1f} s of CPU; a test over {MAX_CPU_S:g} s is `process`"
        )
    for test, command in run.starters.items():
        found.append(f"{test} starts a process, so it is `process`: {command}")
    if tier == "check":
        for test, reason in run.skipped.items():
            if not any(re.search(pattern, reason) for pattern in allowed):
                found.append(f"{test} was skipped, which allowed_skips.txt does not list: {reason}")
    return found


def closing_lines(
    run: Run, wavered: dict[str, str], found: Sequence[str], seconds: float
) -> list[str]:
    """Return the lines that end the output."""
    version = subprocess.run([valkey_program(), "--version"], capture_output=True, text=True).stdout
    server = re.search(r"v=([0-9.]+)", version)
    surroundings = (
        f"load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}, "
        f"Valkey {server[1] if server else 'unknown'}"
    )
    numbers = (
        f"{run.passed + len(wavered):,} passed, {len(run.skipped)} skipped, "
        f"{len(wavered)} wavered, {len(run.failed)} failed in {seconds:.0f} s ({surroundings})"
    )
    return [
        numbers,
        *(f"failed: {test}: {_gist(text)}" for test, text in run.failed.items()),
        *(f"wavered: {test}: {_gist(text)}" for test, text in wavered.items()),
        *run.crashed,
        *(f"red: {line}" for line in found),
        *(f"skipped {n} times: {why}" for why, n in Counter(run.skipped.values()).most_common()),
        *(f"left out: {what}" for what in run.left_out),
    ]


def _ending(status: int | None) -> str:
    if status is None:
        return "hangs"
    return f"ended with signal {-status}" if status < 0 else f"ended with status {status}"


def _gist(text: str) -> str:
    """Return the line of a failure that says what went wrong."""
    lines = text.strip().splitlines()
    errors = [line[2:].strip() for line in lines if line.startswith("E ")]
    return (errors[:1] or lines[-1:] or [""])[0][:200]


def _command(tier: str, arguments: Sequence[str]) -> list[str]:
    profile = "quick" if tier in GATE else "full"
    hang = _LONG_HANG_S if tier == "full" else _HANG_S
    hung = ["-o", f"faulthandler_timeout={hang}", "-o", "faulthandler_exit_on_timeout=true"]
    pytest = [sys.executable, "-m", "pytest", f"--hypothesis-profile={profile}", *hung]
    return [*pytest, *arguments]


def _compile(tier: str) -> None:
    """Compile the tests of a fresh clone, which each of the processes would else do for itself."""
    tests = ROOT / "python" / "tests"
    if any(tests.glob("unit/__pycache__/*-pytest-*.pyc")):
        return
    collect = [sys.executable, "-m", "pytest", f"--tier={tier}", "--collect-only", "-qq"]
    others = [tests / "unit", tests / "property", ROOT / "conformance" / "tests"]
    halves: list[list[Path]] = [[tests / "integration"], others]
    running = [
        subprocess.Popen([*collect, *map(str, half)], cwd=ROOT, stdout=subprocess.DEVNULL)
        for half in halves
    ]
    for process in running:
        process.wait()


def _protocol_is_covered(data: Path) -> bool:
    """Tell whether the tests ran through every branch of jobwire.protocol; print the others."""
    coverage = [sys.executable, "-m", "coverage"]
    file = f"--data-file={data / 'all'}"
    parts = [str(part) for part in data.iterdir()]
    if not parts:
        click.echo("coverage: no test that counts was run")
        return False
    subprocess.run([*coverage, "combine", "-q", file, *parts], cwd=ROOT, check=True)
    report = ["report", file, "--skip-covered", "--show-missing", "--precision=1"]
    click.echo("coverage: branches of jobwire.protocol")
    return subprocess.run([*coverage, *report, "--fail-under=100"], cwd=ROOT).returncode == 0


def main(arguments: Sequence[str]) -> int:
    """Return the exit status."""
    if not arguments or arguments[0] not in (*GATE, *RELEASE):
        click.echo(f"usage: gate {'|'.join((*GATE, *RELEASE))} [PYTEST ARGUMENT]...", err=True)
        return 2
    tier, *more = arguments
    KEPT.mkdir(parents=True, exist_ok=True)
    record, data = KEPT / f"{tier}.jsonl", KEPT / f"{tier}.coverage"
    record.unlink(missing_ok=True)
    shutil.rmtree(data, ignore_errors=True)
    covers = tier == "check" and not more
    environment = dict(os.environ)
    if covers:
        data.mkdir()
        environment["JOBWIRE_COVERAGE"] = str(data)
    began = time.monotonic()
    if not more:
        _compile(tier)
    options = [*_OPTIONS.get(tier, _BESIDE), f"--tier={tier}", f"--record={record}"]
    try:
        status = subprocess.run(
            _command(tier, [*options, *more]), cwd=ROOT, env=environment
        ).returncode
        run = read(record.read_text("utf-8").splitlines() if record.exists() else [])
        wavered = second_try(run, to_try_again(run, status), tier, environment)
        if wavered and not run.failed:
            status = 0
        allowed = [
            line.split("  #")[0].strip()
            for line in ALLOWED_SKIPS.read_text("utf-8").splitlines()
            if line and not line.startswith("#")
        ]
        found = faults(run, list(wavered), tier, allowed)
        if covers and not _protocol_is_covered(data):
            found.append("a branch of jobwire.protocol is run by no test: see the table above")
    except KeyboardInterrupt:
        return 130
    lines = closing_lines(run, wavered, found, time.monotonic() - began)
    (KEPT / f"{tier}.txt").write_text("\n".join(lines) + "\n", "utf-8")
    if wavered:
        (KEPT / "wavered.txt").write_text("\n".join(wavered) + "\n", "utf-8")
    click.echo("\n" + "\n".join(lines))
    return 1 if status or found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
