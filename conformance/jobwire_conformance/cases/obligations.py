"""Which obligations a claim has, and which of them the suite can check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobwire_conformance import data
from jobwire_conformance.cases.case import Case
from jobwire_conformance.data import Requirement

__all__ = ["checkable", "uncovered", "visible"]


def checkable(cases: Sequence[Case], claim: str, generation: int) -> list[str]:
    """Return the obligations of a claim that some case checks in this generation."""
    checked = {
        requirement
        for case in cases
        if case.generation in (None, generation)
        for requirement in case.requirements
        if claim in case.counts_for(requirement)
    }
    return [each.id for each in visible() if claim in each.claims and each.id in checked]


def uncovered(cases: Sequence[Case], claims: Sequence[str]) -> list[str]:
    """Return the obligations of these claims that no case checks."""
    checked = {
        (each, claim)
        for case in cases
        for each in case.requirements
        for claim in case.counts_for(each)
    }
    return [
        each.id
        for each in visible()
        if any(claim in claims for claim in each.claims)
        and not any((each.id, claim) in checked for claim in each.claims)
    ]


def visible() -> Iterator[Requirement]:
    """Yield the obligations that can be seen from outside."""
    for each in data.requirements().values():
        if each.obliges and each.visible and not each.retired:
            yield each
