"""The reports of `jobwire conform watch`, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from jobwire_conformance.data import requirements, spec_version
from jobwire_conformance.judge import VISIBLE, Finding, Grade, Judge

__all__ = ["as_json", "headline", "line", "print_report"]

_GRADES: tuple[Grade, ...] = ("violation", "warning", "deviation", "note")
_STYLES = {"violation": "bold red", "warning": "yellow", "deviation": "cyan", "note": "dim"}
_EXAMPLES = 3


def headline(judge: Judge) -> str:
    """Return the counts so far as one line."""
    counts = {grade: judge.ledger.count(grade) for grade in _GRADES}
    parts = [_plural(judge.commands, "command")]
    parts += [_plural(len(judge.ledger.tallies), "requirement") + " seen"]
    parts += [_plural(counts[grade], grade) for grade in _GRADES if counts[grade]]
    return ", ".join(parts) + ("" if counts["violation"] else ", 0 violations")


def line(judge: Judge, finding: Finding) -> str:
    """Return a finding as one line, for live reports."""
    grade = judge.ledger.grade(finding)
    wire = " ".join(finding.record.wire())
    return f"{grade} {finding.rule}: expected {finding.expected}; seen {finding.seen}: {wire}"


def print_report(judge: Judge, console: Console) -> None:
    """Print findings by requirement, the number of examinations, and the verdict."""
    ledger = judge.ledger
    for grade in _GRADES:
        for rule in _found(judge, grade):
            _print_rule(judge, rule, grade, console)
    if ledger.tallies:
        console.print(_table(judge))
    unseen = [rule for rule in VISIBLE if rule not in ledger.tallies]
    if unseen and ledger.tallies:
        console.print(f"[dim]never seen: {' '.join(unseen)}[/]", soft_wrap=True)
    if ledger.sidekiq:
        names = ", ".join(map(str, sorted(ledger.sidekiq)))
        console.print(f"[dim]recognised releases of Sidekiq: {names}[/]")
    console.print(f"jobwire: {escape(headline(judge))}", soft_wrap=True)


def as_json(judge: Judge, **members: Any) -> dict[str, Any]:
    """Return all results as JSON data, with at most 20 findings of a requirement."""
    ledger = judge.ledger
    return {
        "spec": spec_version(),
        "commands": judge.commands,
        "counts": {grade: ledger.count(grade) for grade in _GRADES},
        "sidekiq": sorted(ledger.sidekiq),
        "claims": sorted(ledger.claims),
        "requirements": {
            rule: {
                "keyword": requirements()[rule].keyword,
                "seen": tally.seen,
                **{grade: ledger.counts(rule)[grade] for grade in _GRADES},
                "findings": [_finding(judge, finding) for finding in tally.findings],
            }
            for rule, tally in sorted(ledger.tallies.items(), key=lambda item: _place(item[0]))
        },
        "never_seen": [rule for rule in VISIBLE if rule not in ledger.tallies],
        **members,
    }


def _finding(judge: Judge, finding: Finding) -> dict[str, Any]:
    record = finding.record
    return {
        "grade": judge.ledger.grade(finding),
        "expected": finding.expected,
        "seen": finding.seen,
        "seq": record.sequence,
        "conn": record.connection,
        "at": round(record.at, 6),
        "wire": record.wire(),
    }


def _found(judge: Judge, grade: Grade) -> Sequence[str]:
    tallies = judge.ledger.tallies
    return sorted((rule for rule in tallies if judge.ledger.counts(rule)[grade]), key=_place)


def _print_rule(judge: Judge, rule: str, grade: Grade, console: Console) -> None:
    tally, requirement = judge.ledger.tallies[rule], requirements()[rule]
    times = judge.ledger.counts(rule)[grade]
    console.print(
        f"[{_STYLES[grade]}]{grade} {rule}[/] {times} of {max(tally.seen, times)} "
        f"[dim]{', '.join(requirement.claims)}[/]",
        soft_wrap=True,
    )
    if grade != "note":
        console.print(f"  [italic]{escape(' '.join(requirement.text.split()))}[/]", soft_wrap=True)
    shown = [finding for finding in tally.findings if judge.ledger.grade(finding) == grade]
    for finding in shown[: 1 if grade == "note" else _EXAMPLES]:
        record = finding.record
        wire = escape(" ".join(record.wire()))
        console.print(f"  expected {escape(finding.expected)}", soft_wrap=True)
        console.print(f"  seen     {escape(finding.seen)}", soft_wrap=True)
        place = f"connection {record.connection}, command {record.sequence}"
        console.print(f"  [dim]{place}:[/] {wire}", soft_wrap=True)
    console.print()


def _table(judge: Judge) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("requirement")
    table.add_column("seen", justify="right")
    for grade in _GRADES:
        table.add_column(f"{grade}s", justify="right", style=_STYLES[grade])
    for rule, tally in sorted(judge.ledger.tallies.items(), key=lambda item: _place(item[0])):
        counts = judge.ledger.counts(rule)
        cells = [str(counts[grade] or "") for grade in _GRADES]
        table.add_row(rule, str(max(tally.seen, tally.broken + tally.doubtful)), *cells)
    return table


def _place(rule: str) -> int:
    return [*requirements()].index(rule)


def _plural(number: int, word: str) -> str:
    return f"{number} {word}" + ("" if number == 1 else "s")
