"""The gap to each claim that is not met: the requirements that fail, by the reason they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from jobwire_conformance import data
from jobwire_conformance.reports.matrix import Column, Mark

__all__ = ["Failing", "Gap", "Reason", "gaps"]

_UNMET: tuple[Mark, ...] = ("failed", "deviation", "alone", "part")
_TRAFFIC = "traffic"  # the judge of all traffic, which is not a case that can be replayed


@dataclass(frozen=True, slots=True)
class Failing:
    """A requirement that fails.

    Attributes:
        requirement: Its id.
        status: Its status, such as `deviation`.
        message: The message of its first check; empty if it is the reason.
        cases: The cases whose checks fail.
    """

    requirement: str
    status: str
    message: str
    cases: Sequence[str]

    @property
    def case(self) -> str:
        """The first case that can be replayed; empty if there is none."""
        return next((case for case in self.cases if case != _TRAFFIC), "")


@dataclass(frozen=True, slots=True)
class Reason:
    """A reason that the implementation declares or a check reports, with all that it breaks."""

    text: str
    issue: str
    failing: Sequence[Failing]


@dataclass(frozen=True, slots=True)
class Gap:
    """All that keeps a claim from being met.

    Attributes:
        column: The implementation.
        claim: The claim.
        mark: The state of the claim.
        reasons: The reasons of its failures, the one that breaks most first.
        unchecked: Obligations that the run did not check.
        requires: Claims that this one requires, and that are not met.
        total: Number of requirements that fail here and in the claims that this one requires.
    """

    column: Column
    claim: str
    mark: Mark
    reasons: Sequence[Reason]
    unchecked: Sequence[str]
    requires: Sequence[str]
    total: int

    @property
    def failing(self) -> Sequence[Failing]:
        """The requirements that fail."""
        return [failing for reason in self.reasons for failing in reason.failing]

    @property
    def size(self) -> str:
        """The size of the gap, in words."""
        parts = []
        if self.reasons:
            number = _number(len(self.failing), "requirement")
            is_shared = len(self.reasons) < len(self.failing)
            reasons = f" ({_number(len(self.reasons), 'reason')})" if is_shared else ""
            parts.append(f"{number}{reasons}")
        if self.unchecked:
            parts.append(f"a check of {_number(len(self.unchecked), 'requirement')} more")
        parts += self.requires
        return ", ".join(parts) or "a run without an error"


def gaps(columns: Sequence[Column]) -> list[Gap]:
    """Return the claims that are made and not met, the one with the fewest failures first."""
    found = [
        _gap(column, claim, mark)
        for column in columns
        for claim in data.CLAIMS
        if (mark := column.claim(claim)) in _UNMET or column.failing(claim)
    ]
    return sorted(found, key=lambda gap: (gap.total, len(gap.failing), len(gap.unchecked)))


def _gap(column: Column, claim: str, mark: Mark) -> Gap:
    of_reason: dict[tuple[str, str], list[Failing]] = {}
    for requirement, checks in column.failing(claim).items():
        status, note = column.cell(claim, requirement)
        if note is not None:
            shown = note.check
            message = shown.get("message", "") if "reason" in shown else ""
            cases = tuple(dict.fromkeys(check["case"] for check in checks))
            failing = Failing(requirement, status, message, cases)
            of_reason.setdefault((note.why, shown.get("issue", "")), []).append(failing)
    order = {id_: number for number, id_ in enumerate(data.requirements())}
    reasons = [
        Reason(*reason, sorted(failing, key=lambda each: order.get(each.requirement, len(order))))
        for reason, failing in of_reason.items()
    ]
    reasons.sort(key=lambda reason: -len(reason.failing))
    claims = data.complete([claim])
    return Gap(
        column,
        claim,
        mark,
        reasons,
        column.results["claims"][claim].get("missing", ()),
        [name for name in data.required_claims(claim) if column.claim(name) in _UNMET],
        len({requirement for name in claims for requirement in column.failing(name)}),
    )


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
