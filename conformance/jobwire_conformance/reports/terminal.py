"""The progress of a run on the terminal, and its last lines."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TextIO, cast

from jobwire_conformance.cases.case import Case
from jobwire_conformance.data import DEFAULT_GENERATION
from jobwire_conformance.errors import REQUEST
from jobwire_conformance.reports.claim_status import WORDS, called, counts, states
from jobwire_conformance.reports.failure import explanation
from jobwire_conformance.reports.results import Check, Results
from jobwire_conformance.run.run import check_data
from jobwire_conformance.run.verdicts import CaseVerdict
from jobwire_conformance.wire.text import one_line, visible

__all__ = ["Terminal", "closing", "errors"]

_WIDTH = 100
_FAULTS = 3  # different adapter faults to print in full
_NAMES = 12  # cases to name on one line
_MARKS = {"pass": "ok", "fail": "FAIL", "blocked": "BLOCKED", "warn": "warn", "info": "info"}


class Terminal:
    """Prints the progress of a run, and on a terminal also the event that it waits for.

    Args:
        total: Number of cases.
        replay: The command that runs one case again, without the name of the case.
        out: Stream to write to.
        cases: True to print a line for every case.
        failures: True to print the checks that did not pass.
    """

    def __init__(
        self,
        total: int,
        replay: str,
        out: TextIO = sys.stderr,
        *,
        cases: bool = True,
        failures: bool = True,
    ) -> None:
        self._cases = cases
        self._failures = failures
        self._total = total
        self._replay = replay
        self._out = out
        self._done = 0
        self._live = out.isatty()
        self._shown: set[tuple[str, str]] = set()

    def waiting(self, case: Case, event: str) -> None:
        """Show the event, if the output is a terminal."""
        if self._live:
            pace = f" (pace: {case.pace})" if case.pace else ""
            self._line(f"[{self._done}/{self._total}] {case.name}{pace}: waiting for {event}")

    def finished(self, case: Case, verdicts: Sequence[CaseVerdict], seconds: float) -> None:
        """Print the result of a case."""
        self._done += 1
        self._clear()
        marks = sorted({_MARKS.get(verdict.status, verdict.status) for verdict in verdicts})
        result = " ".join(marks) or ("only for the loss map" if case.crash else "no verdict")
        not_passed = [v for v in verdicts if v.status != "pass" and not _is_passed_later(v)]
        if self._cases or (self._failures and not_passed):
            self._print(f"[{self._done}/{self._total}] {case.name}  {result}  {seconds:.1f} s")
        for verdict in not_passed if self._failures else ():
            ended = verdict.finding.by == "adapter"  # one fault for all checks of the case
            key = (verdict.case, "" if ended else verdict.requirement)
            if key not in self._shown:
                self._shown.add(key)
                self._explain(verdict)

    def close(self) -> None:
        """Clear the line of the progress."""
        self._clear()

    def _explain(self, verdict: CaseVerdict) -> None:
        check = cast(Check, check_data(verdict))
        runs = f" (passed in {verdict.held} of {verdict.runs} runs)" if verdict.runs > 1 else ""
        what = f"[{verdict.requirement}] {verdict.claim}"
        if verdict.finding.by == "adapter":  # one fault for all checks of the case
            what = "an adapter fault ended the case"
        self._print(f"  {verdict.status}: {what}{runs}")
        for paragraph in explanation(check, self._replay):
            self._print(_indented(paragraph))

    def _line(self, text: str) -> None:
        self._out.write(f"\r\x1b[K{one_line(text, _WIDTH - 1)[: _WIDTH - 1]}")
        self._out.flush()

    def _clear(self) -> None:
        if self._live:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def _print(self, text: str) -> None:
        self._out.write(text + "\n")


def _is_passed_later(verdict: CaseVerdict) -> bool:
    return verdict.status == "added-after" and verdict.finding.ok


def _indented(text: str) -> str:
    """Return a paragraph, wrapped. A command, which begins with spaces, keeps its line."""
    return "\n".join(
        f"    {line}"
        if line.startswith((" ", "again: "))
        else textwrap.fill(
            line,
            _WIDTH,
            initial_indent="    ",
            subsequent_indent="    ",
            break_on_hyphens=False,
            break_long_words=False,
        )
        for line in visible(text, 4000).splitlines()
    )


def errors(results: Results) -> Iterator[str]:
    """Yield the errors that ended cases or the run. Equal errors of several cases come once."""
    cases: dict[str, tuple[str, list[str]]] = {}  # by the message without its request
    stopped = []
    for error in results.get("errors", ()):
        if "case" in error:
            lines = error["message"].split("\n")
            rest = "\n".join(line for line in lines if not line.startswith(REQUEST))
            cases.setdefault(rest, (error["message"], []))[1].append(error["case"])
        else:
            stopped.append(error["message"])
    shown = [*cases.values()][:_FAULTS]
    for message, names in shown:
        yield f"in case {_some(names)}: {message}"
    if len(cases) > len(shown):
        names = [name for _, others in [*cases.values()][_FAULTS:] for name in others]
        yield f"other adapter faults, which the reports show, ended case {_some(names)}"
    yield from stopped


def _some(names: Sequence[str]) -> str:
    omitted = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return ", ".join(names[:_NAMES]) + omitted


def closing(results: Results) -> str:
    """Return the last lines for people."""
    state_of = states(results)
    lines = [
        f"{name:20} {WORDS[state_of[name]]:17} {counts(claim) or 'no checks were run'}"
        for name, claim in results["claims"].items()
    ]
    server = results["server"]
    lines.append(
        f"{called(results)}, generation {results.get('generation', DEFAULT_GENERATION)}, "
        f"{server['name']} {server['version']}, {results.get('seconds', 0):.1f} s, "
        f"seed {results['seed']}"
    )
    return "\n".join(lines)
