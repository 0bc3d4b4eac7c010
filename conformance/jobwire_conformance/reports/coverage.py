"""The cases that check each requirement of a claim, or the reason why no case does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from jobwire_conformance import data
from jobwire_conformance.cases.case import Case
from jobwire_conformance.config import Config
from jobwire_conformance.data import Requirement
from jobwire_conformance.run.run import offered
from jobwire_conformance.run.traffic import REQUIREMENTS

__all__ = ["Covered", "covered"]

_SHOWN = 3  # cases for other claims


class Covered(TypedDict):
    """The cases of a requirement; without cases, the reason."""

    cases: list[str]
    without: str


def covered(cases: Sequence[Case], claim: str, config: Config) -> dict[str, Covered]:
    """Return the requirements of a claim with their cases, in the order of SPEC.md."""
    return {
        requirement.id: _covered(cases, requirement, claim, config)
        for requirement in data.requirements().values()
        if not requirement.retired
        and claim in requirement.claims
        and config.generation in requirement.generations
    }


def _covered(
    cases: Sequence[Case], requirement: Requirement, claim: str, config: Config
) -> Covered:
    checking = [
        case for case in cases if requirement.id in case.checks_for([claim], config.generation)
    ]
    usable = [case.name for case in offered(checking, config)]
    if usable:
        return {"cases": usable, "without": ""}
    if checking:
        has = {*config.offers, *config.claims, *config.unasked}
        case = min(checking, key=lambda each: len({*each.needs} - has))
        needs = [f"the {_kind(need)} {need}" for need in case.needs if need not in has]
        reason = f"{case.name} needs {' and '.join(needs)}"
    elif not requirement.visible:
        reason = f"not checked: {requirement.test.removeprefix('none (').removesuffix(')')}"
    else:
        elsewhere = [case.name for case in cases if requirement.id in case.requirements]
        shown = ", ".join(elsewhere[:_SHOWN]) + (", ..." if len(elsewhere) > _SHOWN else "")
        reason = f"checked for other claims: {shown}" if elsewhere else "not checked"
    if requirement.id in REQUIREMENTS:
        reason = f"judged in the traffic of all cases{f'; {reason}' if checking else ''}"
    return {"cases": [], "without": reason}


def _kind(need: str) -> str:
    return "claim" if need in data.CLAIMS else "offer"
