"""The progress of a run on the terminal, and its last lines."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import TextIO

from jobwire_conformance import data
from jobwire_conformance.cases.case import Case
from jobwire_conformance.data import DEFAULT_GENERATION
from jobwire_conformance.reports.claim_status import WORDS, called, counts, states
from jobwire_conformance.reports.results import Results
from jobwire_conformance.reports.text import one_line, visible
from jobwire_conformance.run.checks import ProcessCall
from jobwire_conformance.run.verdicts import CaseVerdict
from jobwire_conformance.wire.resp import Refusal, decode

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
                (self._ended if ended else self._explain)(verdict)

    def close(self) -> None:
        """Clear the line of the progress."""
        self._clear()

    def _explain(self, verdict: CaseVerdict) -> None:
        finding = verdict.finding
        requirement = data.requirements()[finding.requirement]
        times = f" (passed in {verdict.held} of {verdict.runs} runs)" if verdict.runs > 1 else ""
        self._print(f"  {verdict.status}: [{requirement.id}] {verdict.claim}{times}")
        self._print(_indented(requirement.text.partition("\n|")[0]))
        if finding.blocked_by is not None:
            self._print(_indented(f"blocked by an earlier failure: {finding.blocked_by}"))
        else:
            self._print(_indented(finding.message))
        for line in finding.lines:
            self._print(f"      {wire_line(line)}")
        if verdict.deviation is not None:
            self._print(_indented(f"declared: {verdict.deviation.reason}"))
        self._print(f"    again: {self._replay} {verdict.finding.again or verdict.case}")

    def _ended(self, verdict: CaseVerdict) -> None:
        times = f" (passed in {verdict.held} of {verdict.runs} runs)" if verdict.held else ""
        self._print(f"  {verdict.status}: an adapter fault ended the case{times}")
        self._print(_indented(verdict.finding.blocked_by or ""))
        self._print(f"    again: {self._replay} {verdict.case}")

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
    return "\n".join(
        textwrap.fill(line, _WIDTH, initial_indent="    ", subsequent_indent="    ")
        for line in visible(text, 4000).splitlines()
    )


def wire_line(line: ProcessCall) -> str:
    """Return a command and its reply for people."""
    name, call = line
    words = " ".join(one_line(word) for word in call.words[:8])
    omitted = f" ... {len(call.words) - 8} more" if len(call.words) > 8 else ""
    if call.reply is None:
        reply = "no reply"
    else:
        decoded = decode(call.reply)
        reply = decoded.message if isinstance(decoded, Refusal) else repr(decoded)
    return f"{name} #{call.sequence} {words}{omitted} -> {one_line(reply[:60])}"


def errors(results: Results) -> Iterator[str]:
    """Yield the errors that ended cases or the run. Equal errors of several cases come once."""
    cases: dict[str, list[str]] = {}
    stopped = []
    for error in results.get("errors", ()):
        if "case" in error:
            cases.setdefault(error["message"], []).append(error["case"])
        else:
            stopped.append(error["message"])
    shown = [*cases.items()][:_FAULTS]
    for message, names in shown:
        yield f"in case {_some(names)}: {message}"
    if len(cases) > len(shown):
        names = [name for others in [*cases.values()][_FAULTS:] for name in others]
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
