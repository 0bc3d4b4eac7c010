"""Frozen sets: the checks that count for a version of the specification, whatever came since."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobwire_conformance import compact, data
from jobwire_conformance.cases.case import Case
from jobwire_conformance.errors import SuiteFault, Usage
from jobwire_conformance.run import traffic
from jobwire_conformance.run.verdicts import CaseVerdict

__all__ = ["Frozen", "checks_of", "counted", "current", "load", "path_of", "text"]


@dataclass(frozen=True, slots=True)
class Frozen:
    """The checks that count for one version.

    Attributes:
        spec: The version.
        claims: Claim to checks, each `case#ID`.
    """

    spec: str
    claims: Mapping[str, frozenset[str]]

    def has(self, verdict: CaseVerdict) -> bool:
        """Whether it counts."""
        checks = self.claims.get(verdict.claim, frozenset())
        return f"{verdict.case}#{verdict.requirement}" in checks


def current(cases: Sequence[Case]) -> Frozen:
    """Return the set of all checks that the suite has now."""
    found: dict[str, set[str]] = {claim: set() for claim in data.CLAIMS}
    for case in cases:
        for requirement in case.requirements:
            for claim in case.counts_for(requirement):
                found[claim].add(f"{case.name}#{requirement}")
    for requirement in traffic.REQUIREMENTS:
        for claim in data.requirements()[requirement].claims:
            found[claim].add(f"{traffic.NAME}#{requirement}")
    return Frozen(data.spec_version(), {claim: frozenset(each) for claim, each in found.items()})


def text(frozen: Frozen) -> str:
    """Return the file of a set: a line for each case, with claim to requirements."""
    cases: dict[str, dict[str, list[str]]] = {}
    for claim, checks in frozen.claims.items():
        for check in sorted(checks):
            case, _, requirement = check.partition("#")
            cases.setdefault(case, {}).setdefault(claim, []).append(requirement)
    return compact.dump(
        {"set": 1, "spec": frozen.spec, "cases": dict(sorted(cases.items()))}
    ).decode()


def path_of(spec: str) -> Path:
    """Return where the set of a version is."""
    return data.sets_directory() / f"{spec}.json"


def counted(spec: str | None) -> Frozen | None:
    """Return the checks that count; None for all, as long as the specification is a draft.

    Args:
        spec: The version that was asked for, if one was.
    """
    if spec is None and "-draft" in data.spec_version():
        return None
    return load(spec or data.spec_version())


def checks_of(spec: str) -> Mapping[str, frozenset[str]]:
    """Return claim to checks of a version; nothing if the suite does not have its set."""
    return load(spec).claims if spec in _versions() else {}


def load(spec: str) -> Frozen:
    """Return the set of a version.

    Raises:
        Usage: There is none.
        SuiteFault: The file is not as it should be.
    """
    known = _versions()
    if spec not in known:
        raise Usage(f"there is no set of checks for {spec!r}; there are {', '.join(known)}")
    path = path_of(spec)
    try:
        raw = json.loads(path.read_bytes())
        checks: dict[str, set[str]] = {claim: set() for claim in data.CLAIMS}
        for case, claims in raw["cases"].items():
            for claim, requirements in claims.items():
                checks[claim] |= {f"{case}#{requirement}" for requirement in requirements}
        return Frozen(raw["spec"], {claim: frozenset(names) for claim, names in checks.items()})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SuiteFault(f"the suite is not whole: {path}: {error!r}") from None


def _versions() -> list[str]:
    return sorted(path.stem for path in data.sets_directory().glob("*.json"))
