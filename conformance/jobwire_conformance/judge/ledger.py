"""The findings of a judge, by requirement."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from jobwire_conformance.data import Requirement, requirements
from jobwire_conformance.judge.record import Record

__all__ = ["Finding", "Grade", "Ledger", "RuleTally"]

Grade: TypeAlias = Literal["violation", "warning", "deviation", "note"]
"""The severity of a finding.

- `violation`: an obligation is not met
- `warning`: a recommendation is not followed
- `deviation`: genuine Sidekiq does not do it: the obligation is robust, or of another generation
- `note`: a breach only for applications that claim an optional profile, or a doubtful finding
"""

_KEPT = 20  # findings of one requirement and grade
# Optional profiles, which Sidekiq does not have.
_OPTIONAL = ("faults", "reliable")


@dataclass(frozen=True, slots=True)
class Finding:
    """One breach of one requirement.

    Attributes:
        rule: Id of the requirement.
        expected: The traffic that the requirement asks for in this place.
        seen: The traffic that was seen instead.
        record: The command that shows the breach.
        doubtful: True if the traffic may be lawful for a reason that it does not show.
    """

    rule: str
    expected: str
    seen: str
    record: Record
    doubtful: bool = False


class RuleTally:
    """The number of examinations of one requirement, and of its breaches."""

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
        claims: Optional profiles that the application claims, like `worker/reliable`.

    Attributes:
        sidekiq: Major releases of genuine Sidekiq that were recognised.
        others: True if another implementation was recognised.
        news: The first finding of each requirement, for live reports, which empty it.
    """

    def __init__(self, claims: Iterable[str] = ()) -> None:
        self.tallies: dict[str, RuleTally] = {}
        self.claims = set(claims)
        self.sidekiq: set[int] = set()
        self.others = False
        self.news: deque[Finding] = deque(maxlen=100)

    def exercise(self, rule: str, times: int = 1) -> None:
        """Count an examination of a requirement."""
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
        """Count an examination of a requirement; add a finding if it is broken.

        Returns:
            True if the requirement holds.
        """
        tally = self._tally(rule)
        tally.seen += 1
        if holds:
            return True
        self.accuse(Finding(rule, expected, seen, record, doubtful))
        return False

    def accuse(self, finding: Finding) -> None:
        """Add a finding of an examination that is already counted."""
        tally = self._tally(finding.rule)
        if not tally.findings:
            self.news.append(finding)
        tally.add(finding)

    def grade(self, finding: Finding) -> Grade:
        """Return the severity of a finding."""
        requirement = requirements()[finding.rule]
        if finding.doubtful or not self._is_asked(requirement.profiles):
            return "note"
        if not requirement.obliges:
            return "warning"
        if self.sidekiq and not self.others and not self._is_sidekiqs(requirement):
            return "deviation"
        return "violation"

    def count(self, grade: Grade) -> int:
        """Return the number of findings of a grade."""
        return sum(self.counts(rule)[grade] for rule in self.tallies)

    def counts(self, rule: str) -> Counter[Grade]:
        """Return the number of findings of a requirement by grade."""
        tally = self.tallies.get(rule)
        by_grade: Counter[Grade] = Counter()
        if tally is None or not (tally.broken or tally.doubtful):
            return by_grade
        if tally.doubtful:
            by_grade["note"] += tally.doubtful
        if tally.broken:
            plain = Finding(rule, "", "", Record(0, 0, (), 0.0))
            by_grade[self.grade(plain)] += tally.broken
        return by_grade

    def _is_asked(self, profiles: tuple[str, ...]) -> bool:
        return any(
            profile in self.claims or profile.partition("/")[2] not in _OPTIONAL
            for profile in profiles
        )

    def _is_sidekiqs(self, requirement: Requirement) -> bool:
        """Return whether genuine Sidekiq of a recognised release meets the requirement."""
        majors = {int(generation[0]) for generation in requirement.generations}
        return requirement.level == "interop" and not majors.isdisjoint(self.sidekiq)

    def _tally(self, rule: str) -> RuleTally:
        tally = self.tallies.get(rule)
        if tally is None:
            tally = self.tallies[rule] = RuleTally()
        return tally
