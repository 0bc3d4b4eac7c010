"""The obligations of a claim, and those of them that the suite can check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from jobwire_conformance import data
from jobwire_conformance.cases.case import Case
from jobwire_conformance.data import Requirement

__all__ = ["checkable", "uncovered", "visible", "without_case"]


def checkable(cases: Sequence[Case], claim: str, generation: str) -> list[str]:
    """Return the obligations of a claim that some case checks in this generation."""
    checked = {
        requirement for case in cases for requirement in case.checks_for([claim], generation)
    }
    return [
        obligation.id
        for obligation in visible()
        if claim in obligation.claims and obligation.id in checked
    ]


def uncovered(cases: Sequence[Case], claims: Sequence[str]) -> list[str]:
    """Return the obligations of these claims that no case checks."""
    checked = {
        (requirement, claim)
        for case in cases
        for requirement in case.requirements
        for claim in case.counts_for(requirement)
    }
    return [
        obligation.id
        for obligation in visible()
        if any(claim in claims for claim in obligation.claims)
        and not any((obligation.id, claim) in checked for claim in obligation.claims)
    ]


def without_case(cases: Sequence[Case], claim: str, generation: str) -> list[str]:
    """Return the requirements of a claim that no case checks by itself, in this generation.

    Some of them are judged in the traffic of all cases, if it happens to show them.
    """
    checked = {id_ for case in cases for id_ in case.checks_for([claim], generation)}
    return [
        requirement.id
        for requirement in data.requirements().values()
        if not requirement.retired
        and claim in requirement.claims
        and generation in requirement.generations
        and requirement.id not in checked
    ]


def visible() -> Iterator[Requirement]:
    """Yield the obligations that can be observed from outside."""
    for requirement in data.requirements().values():
        if requirement.obliges and requirement.visible and not requirement.retired:
            yield requirement
