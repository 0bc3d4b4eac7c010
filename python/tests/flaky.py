"""Run the tests many times under load; list the tests that did not always pass.

    python -m tests.flaky [--runs N] [--busy N] [--io] [--] [PYTEST ARGUMENT]...
    python -m tests.flaky --suite [--runs N] [--beside N] [--busy N] [--io] [--pause MS]
                             [--] [CASE]...

With --suite, run the conformance suite on the reference instead, with 1, 2 and 4 sandboxes
one by one, and list the checks that failed.

Exit status: 0 if every test passed every time, 1 if not, 2 for wrong usage.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console

from harness.servers import Reaper
from tests.flaky_suite import red_table, runs_of_suite

__all__ = ["Outcome", "busy_machine", "outcome_of", "table"]

ROOT = Path(__file__).resolve().parents[2]
WRITERS = 2
WAVERED = ROOT / "build" / "gate" / "wavered.txt"
PYTEST = [sys.executable, "-m", "pytest", "-q", "--color=no", "--hypothesis-profile=quick"]
ALL = ["--tier=test", "-n4", "--dist=worksteal"]
CALCULATE = "while True: pass"
WRITE = """
import os, sys
block = os.urandom(1 << 20)
while True:
    with open(sys.argv[1], "wb") as file:
        for _ in range(32):
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
"""
_PERCENT = re.compile(r"\[ *([0-9]+)%\]")


@dataclass(frozen=True)
class Outcome:
    """The result of one run.

    Attributes:
        status: The exit status of pytest.
        seconds: The duration of the run.
        tests: The number of tests that ran.
        failures: The tests that failed, each with the end of its report.
    """

    status: int
    seconds: float
    tests: int
    failures: dict[str, str]

    def __str__(self) -> str:
        if self.status == 0:
            result = "passed"
        elif self.failures:
            result = f"{len(self.failures)} failed"
        else:
            result = f"exit status {self.status}"
        return f"{self.tests} tests, {result}, {self.seconds:.0f} s"


@contextmanager
def busy_machine(busy: int, writers: int) -> Iterator[None]:
    """Keep the machine busy: `busy` processes calculate, `writers` write and wait for the disk."""
    reaper = Reaper()
    load: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="jobwire-flaky-io-") as directory:
        try:
            programs = [[CALCULATE]] * busy
            programs += [[WRITE, f"{directory}/{number}"] for number in range(writers)]
            for program in programs:
                process = subprocess.Popen([sys.executable, "-I", "-S", "-c", *program])
                load.append(process)
                reaper.watch(process.pid)
            yield
        finally:
            for process in load:
                process.kill()
                process.wait()
            reaper.close()


def run_once(arguments: Sequence[str], directory: Path, out: Console, title: str) -> Outcome:
    """Run the tests once and show their progress."""
    report, log = directory / "junit.xml", directory / "output.txt"
    began = time.monotonic()
    shown = -1
    with log.open("wb") as kept:
        process = subprocess.Popen(
            [*PYTEST, *arguments, f"--junit-xml={report}"],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                kept.write(line)
                percent = _PERCENT.search(line.decode(errors="replace"))
                # One line for each tenth, which is also readable in a log file.
                if percent is not None and int(percent[1]) // 10 > shown:
                    shown = int(percent[1]) // 10
                    out.print(f"{title}: {percent[1]} %", end="\r" if out.is_terminal else "\n")
            status = process.wait()
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                process.wait()
    return outcome_of(report, status, time.monotonic() - began)


def outcome_of(report: Path, status: int, seconds: float) -> Outcome:
    """Read the JUnit report of a run; without one, no test is known to have run."""
    if not report.exists():
        return Outcome(status, seconds, 0, {})
    cases = list(ElementTree.parse(report).getroot().iter("testcase"))
    failures = {
        f"{case.get('classname')}::{case.get('name')}": (problem.text or "")[-4000:]
        for case in cases
        for problem in case
        if problem.tag in ("failure", "error")
    }
    return Outcome(status, seconds, len(cases), failures)


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a line for each test that failed: failures, runs and its name."""
    failures = Counter(name for outcome in outcomes for name in outcome.failures)
    return [
        f"{count:3d} of {len(outcomes)}  {name}"
        for name, count in sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    ]


def main() -> int:
    """Return the exit status."""
    parser = argparse.ArgumentParser(prog="flaky", description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, help="number of runs; 50 of some tests, 20 of all")
    parser.add_argument("--busy", type=int, default=3, help="processes that calculate; 3")
    parser.add_argument(
        "--beside", type=int, default=1, help="runs of the suite at a time, with --suite; 1"
    )
    parser.add_argument("--io", action="store_true", help="also write to the disk")
    parser.add_argument("--suite", action="store_true", help="run the conformance suite")
    parser.add_argument(
        "--pause", type=float, default=40, help="hold back replies for up to so many ms; 40"
    )
    parser.add_argument(
        "--settings", default="conformance.toml", help="settings of the reference; conformance.toml"
    )
    parser.add_argument("pytest", nargs="*", metavar="ARGUMENT", help="after --")
    options = parser.parse_args()
    tests = options.pytest
    if not tests and not options.suite and WAVERED.exists():
        tests = WAVERED.read_text("utf-8").split("\n")[:-1]
    if options.runs is None:
        options.runs = 50 if tests else 20
    if options.runs < 1 or options.busy < 0 or options.beside < 1:
        parser.error("--runs and --beside take 1 or more, --busy 0 or more")
    out = Console(highlight=False, soft_wrap=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the load also ends
    writers = WRITERS if options.io else 0
    out.print(f"{options.runs} runs on {os.cpu_count()} cores, load: {options.busy} + {writers} io")
    kept = Path(tempfile.mkdtemp(prefix="jobwire-flaky-"))
    if options.suite:
        with busy_machine(options.busy, writers):
            reds, counts = runs_of_suite(
                options.runs,
                out,
                kept,
                beside=options.beside,
                pause=options.pause / 1000,
                settings=options.settings,
                names=options.pytest,
            )
        out.print("\n".join(red_table(reds, counts)), markup=False)
        if reds:
            out.print(f"the reports of the runs with red checks are in {kept}", markup=False)
            return 1
        shutil.rmtree(kept)
        out.print(f"every check passed in all of {options.runs} runs")
        return 0
    outcomes: list[Outcome] = []
    with busy_machine(options.busy, writers):
        for number in range(1, options.runs + 1):
            directory = kept / f"run-{number}"
            directory.mkdir()
            title = f"run {number} of {options.runs}"
            outcome = run_once(tests or ALL, directory, out, title)
            outcomes.append(outcome)
            out.print(f"{title}: {outcome}", markup=False)
            for name in outcome.failures:
                out.print(f"    {name}", markup=False)
            if outcome.status == 0:
                shutil.rmtree(directory)
    seconds = sorted(outcome.seconds for outcome in outcomes)
    out.print(f"times: {seconds[0]:.0f} to {seconds[-1]:.0f} s")
    if all(outcome.status == 0 for outcome in outcomes):
        shutil.rmtree(kept)
        out.print(f"every test passed in all of {len(outcomes)} runs")
        return 0
    for line in table(outcomes):
        out.print(line, markup=False)
    out.print(f"the output of the runs that failed is in {kept}", markup=False)
    return 1


if __name__ == "__main__":
    sys.exit(main())
