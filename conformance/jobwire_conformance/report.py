"""Reports: the terminal while it runs, JUnit and a page in Markdown afterwards."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import TextIO
from xml.etree import ElementTree

from jobwire_conformance import data
from jobwire_conformance.cases import Case
from jobwire_conformance.play import Line
from jobwire_conformance.resp import Refusal, decode
from jobwire_conformance.run import Outcome
from jobwire_conformance.verdicts import FAILURES, Verdict, summary

__all__ = ["Terminal", "junit", "markdown", "uncovered"]

_WIDTH = 100
_MARKS = {"pass": "ok", "fail": "FAIL", "blocked": "BLOCKED", "warn": "warn", "info": "info"}


class Terminal:
    """Says how a run goes: to people line by line, to a terminal also what it waits for.

    Args:
        total: How many cases there are.
        replay: The command that runs one case again, up to its name.
        out: Where to.
    """

    def __init__(self, total: int, replay: str, out: TextIO = sys.stderr) -> None:
        self._total = total
        self._replay = replay
        self._out = out
        self._done = 0
        self._live = out.isatty()
        self._shown: set[tuple[str, str]] = set()

    def waiting(self, case: Case, what: str) -> None:
        """Show it, if there is a line that can be written again."""
        if self._live:
            pace = f" (pace: {case.pace})" if case.pace else ""
            self._line(f"[{self._done}/{self._total}] {case.name}{pace}: waiting for {what}")

    def finished(self, case: Case, verdicts: Sequence[Verdict], seconds: float) -> None:
        """Show what became of a case."""
        self._done += 1
        self._clear()
        marks = sorted({_MARKS.get(verdict.status, verdict.status) for verdict in verdicts})
        self._say(f"[{self._done}/{self._total}] {case.name}  {' '.join(marks)}  {seconds:.1f} s")
        for verdict in verdicts:
            key = (verdict.case, verdict.requirement)
            if verdict.status != "pass" and key not in self._shown:
                self._shown.add(key)
                self._explain(verdict)

    def close(self) -> None:
        """Leave the line."""
        self._clear()

    def _explain(self, verdict: Verdict) -> None:
        finding = verdict.finding
        requirement = data.requirements()[finding.requirement]
        self._say(f"  {verdict.status}: [{requirement.id}] {verdict.claim}")
        self._say(_indented(requirement.text.partition("\n|")[0]))
        if finding.blocked_by is not None:
            self._say(_indented(f"could not be tried: {finding.blocked_by}"))
        else:
            self._say(_indented(finding.message))
        for line in finding.lines:
            self._say(f"      {wire_line(line)}")
        if verdict.deviation is not None:
            self._say(_indented(f"declared: {verdict.deviation.reason}"))
        self._say(f"    again: {self._replay} {verdict.case}")

    def _line(self, text: str) -> None:
        self._out.write(f"\r\x1b[K{text[: _WIDTH - 1]}")
        self._out.flush()

    def _clear(self) -> None:
        if self._live:
            self._out.write("\r\x1b[K")
            self._out.flush()

    def _say(self, text: str) -> None:
        self._out.write(text + "\n")


def _indented(text: str) -> str:
    return "\n".join(
        textwrap.fill(line, _WIDTH, initial_indent="    ", subsequent_indent="    ")
        for line in text.splitlines()
    )


def wire_line(line: Line) -> str:
    """Return a command and its reply for people."""
    name, call = line
    words = " ".join(_word(word) for word in call.words[:8])
    more = f" ... {len(call.words) - 8} more" if len(call.words) > 8 else ""
    if call.reply is None:
        reply = "no reply"
    else:
        said = decode(call.reply)
        reply = said.message if isinstance(said, Refusal) else repr(said)
    return f"{name} #{call.sequence} {words}{more} -> {reply[:60]}"


def _word(word: bytes) -> str:
    text = word.decode("utf-8", "backslashreplace")
    return text if len(text) <= 160 else f"{text[:160]}..."


def uncovered(cases: Sequence[Case], claims: Sequence[str]) -> list[str]:
    """Return the obligations of these claims that no case checks."""
    checked = {
        (each, claim)
        for case in cases
        for each in case.requirements
        for claim in case.counts_for(each)
    }
    return [
        requirement.id
        for requirement in data.requirements().values()
        if requirement.obliges
        and requirement.visible
        and not requirement.retired
        and any(claim in claims for claim in requirement.claims)
        and not any((requirement.id, claim) in checked for claim in requirement.claims)
    ]


def closing(outcome: Outcome) -> str:
    """Return the last lines for people."""
    lines = []
    for claim, (met, counts) in summary(outcome.config.claims, outcome.verdicts).items():
        parts = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
        state = "met" if met and not outcome.errors else "NOT met" if counts else "not checked"
        lines.append(f"{claim:20} {state:11} {parts or 'no checks were run'}")
    name, version = outcome.server
    lines.append(
        f"{outcome.config.name} {outcome.version}, generation {outcome.config.generation}, "
        f"{name} {version}, {outcome.seconds:.1f} s"
    )
    lines += [
        f"stale: {each.id} is declared as a deviation, but passes; take it out of the file"
        for each in outcome.stale
    ]
    return "\n".join(lines)


def junit(outcome: Outcome) -> bytes:
    """Return an XML file as test reporters read them."""
    suite = ElementTree.Element(
        "testsuite", name="jobwire conform", tests=str(len(outcome.verdicts))
    )
    for verdict in outcome.verdicts:
        test = ElementTree.SubElement(
            suite,
            "testcase",
            classname=f"jobwire.{verdict.claim}",
            name=verdict.requirement,
            file=verdict.case,
            time=f"{verdict.finding.seconds:.3f}",
        )
        finding = verdict.finding
        if verdict.status in FAILURES:
            said = _printable(finding.message or finding.blocked_by or "")
            ElementTree.SubElement(test, "failure", message=f"{verdict.case}: {said}")
        elif verdict.status not in ("pass", "stale"):
            ElementTree.SubElement(test, "skipped", message=verdict.status)
    bad = sum(verdict.status in FAILURES for verdict in outcome.verdicts)
    suite.set("failures", str(bad))
    found: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return found


def _printable(text: str) -> str:
    """Return a text without what XML cannot hold."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)


def markdown(outcome: Outcome) -> str:
    """Return a page: claims, and what did not pass."""
    lines = [f"# {outcome.config.name} {outcome.version}", ""]
    lines += [f"jobwire {data.spec_version()}, generation {outcome.config.generation}", ""]
    lines += ["| Claim | Met | Checks |", "| --- | --- | --- |"]
    for claim, (met, counts) in summary(outcome.config.claims, outcome.verdicts).items():
        parts = ", ".join(f"{number} {status}" for status, number in sorted(counts.items()))
        lines.append(f"| {claim} | {'yes' if met and not outcome.errors else 'no'} | {parts} |")
    rest = [verdict for verdict in outcome.verdicts if verdict.status != "pass"]
    if rest:
        lines += ["", "| Requirement | Case | Status | Why |", "| --- | --- | --- | --- |"]
    for verdict in rest:
        declared = verdict.deviation.reason if verdict.deviation else None
        why = declared or verdict.finding.message or verdict.finding.blocked_by or ""
        cell = why.replace("|", "\\|").replace("\n", " ")
        lines.append(f"| {verdict.requirement} | {verdict.case} | {verdict.status} | {cell} |")
    for error in outcome.errors:
        lines += ["", f"Stopped: {error}"]
    return "\n".join(lines) + "\n"
