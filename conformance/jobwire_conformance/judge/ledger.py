"""What a judge found, requirement by requirement."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from jobwire_conformance.data import requirements
from jobwire_conformance.judge.record import Record

__all__ = ["Finding", "Grade", "Ledger", "Tally", "documented_deviations"]

Grade: TypeAlias = Literal["violation", "warning", "deviation", "note"]
"""`violation`: an obligation is not met. `warning`: a recommendation is not followed. `deviation`:
an obligation that this release of Sidekiq itself does not meet, as the specification says. `note`:
worth knowing, and wrong only for who claims a profile that nobody has to."""

_KEPT = 20  # findings of one requirement and grade
# Profiles that nobody has to claim to take part, and whose obligations Sidekiq does not know.
_BEYOND = ("faults", "reliable")


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of one requirement.

    Attributes:
        rule: Id of the requirement.
        expected: What it asks for, here.
        seen: What came instead.
        record: The command that shows it.
        doubtful: Whether it may be lawful for a reason that the wire does not show.
    """

    rule: str
    expected: str
    seen: str
    record: Record
    doubtful: bool = False


class Tally:
    """How often a requirement could have been broken, and was."""

    def __init__(self) -> None:
        self.seen = 0
        self.broken = 0
        self.doubtful = 0
        self.findings: deque[Finding] = deque(maxlen=_KEPT)

    def add(self, finding: Finding) -> None:
        if finding.doubtful:
            self.doubtful += 1
        else:
            self.broken += 1
        if len(self.findings) < _KEPT:
            self.findings.append(finding)


class Ledger:
    """All tallies of one stream.

    Args:
        claims: Profiles beyond what everybody has to meet, like `worker/reliable`.

    Attributes:
        sidekiq: Major releases of genuine Sidekiq that have shown themselves.
        news: First findings of their requirement, for who reports as it goes; emptied by them.
    """

    def __init__(self, claims: Iterable[str] = ()) -> None:
        self.tallies: dict[str, Tally] = {}
        self.claims = set(claims)
        self.sidekiq: set[int] = set()
        self.others = False
        self.news: deque[Finding] = deque(maxlen=100)

    def exercise(self, rule: str, times: int = 1) -> None:
        """A requirement had its chance to be broken."""
        self._tally(rule).seen += times

    def judge(
        self,
        rule: str,
        holds: object,
        record: Record,
        expected: str,
        seen: str,
        *,
        doubtful: bool = False,
    ) -> bool:
        """Count one look at a requirement; return whether it holds."""
        tally = self._tally(rule)
        tally.seen += 1
        if holds:
            return True
        self.accuse(Finding(rule, expected, seen, record, doubtful))
        return False

    def accuse(self, finding: Finding) -> None:
        """Take a finding in, of a look that was counted before."""
        tally = self._tally(finding.rule)
        if not tally.findings:
            self.news.append(finding)
        tally.add(finding)

    def grade(self, finding: Finding) -> Grade:
        """Return how bad a finding is."""
        requirement = requirements()[finding.rule]
        if finding.doubtful or not self._is_asked(requirement.claims):
            return "note"
        if not requirement.obliges:
            return "warning"
        if self.sidekiq and not self.others:
            excused = documented_deviations().get(finding.rule, frozenset())
            if self.sidekiq & excused:
                return "deviation"
        return "violation"

    def count(self, grade: Grade) -> int:
        """Return how many findings there are of a grade."""
        return sum(self.counts(rule)[grade] for rule in self.tallies)

    def counts(self, rule: str) -> Counter[Grade]:
        """Return the number of findings of a requirement by grade."""
        tally = self.tallies.get(rule)
        found: Counter[Grade] = Counter()
        if tally is None or not (tally.broken or tally.doubtful):
            return found
        if tally.doubtful:
            found["note"] += tally.doubtful
        if tally.broken:
            plain = Finding(rule, "", "", Record(0, 0, (), 0.0))
            found[self.grade(plain)] += tally.broken
        return found

    def _is_asked(self, claims: tuple[str, ...]) -> bool:
        return any(c in self.claims or c.partition("/")[2] not in _BEYOND for c in claims)

    def _tally(self, rule: str) -> Tally:
        tally = self.tallies.get(rule)
        if tally is None:
            tally = self.tallies[rule] = Tally()
        return tally


@cache
def documented_deviations() -> dict[str, frozenset[int]]:
    """Return what SPEC.md's appendix A says: id to the major releases that differ."""
    text = _specification()
    start = text.find("## Appendix A")
    table = text[start : text.find("\n## ", start + 1)].partition("Not run against Sidekiq")[0]
    found: dict[str, set[int]] = {}
    for row in re.findall(r"^\| ([A-Z][^|]*) \| ([^|]*) \|", table, re.MULTILINE):
        majors = {int(n) for n in re.findall(r"\b([678])\b", row[1])}
        if "and later" in row[1] and majors:
            majors |= {n for n in (6, 7, 8) if n >= min(majors)}
        for rule in _ids(row[0]):
            found.setdefault(rule, set()).update(majors)
    return {rule: frozenset(majors) for rule, majors in found.items()}


def _specification() -> str:
    package = Path(__file__).resolve().parents[1]
    packed = package.parent / "jobwire" / "_data" / "SPEC.md"
    path = packed if packed.exists() else package.parents[1] / "SPEC.md"
    return path.read_text("utf-8")


def _ids(cell: str) -> list[str]:
    ids: list[str] = []
    for part in cell.split(","):
        first, _, last = part.strip().partition(" to ")
        area, _, number = first.partition("-")
        if not number.isdigit():
            continue
        end = int(last.rpartition("-")[2]) if last else int(number)
        ids += [f"{area}-{n}" for n in range(int(number), end + 1)]
    return ids
