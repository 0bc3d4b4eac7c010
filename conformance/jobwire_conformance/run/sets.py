"""Frozen sets: the checks that count for a version of the specification."""

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
        """Return whether a verdict counts."""
        checks = self.claims.get(verdict.claim, frozenset())
        return f"{verdict.case}#{verdict.requirement}" in checks


def current(cases: Sequence[Case]) -> Frozen:
    """Return the set of all current checks of the suite."""
    checks: dict[str, set[str]] = {claim: set() for claim in data.CLAIMS}
    for case in cases:
        for requirement in case.requirements:
            for claim in case.counts_for(requirement):
                checks[claim].add(f"{case.name}#{requirement}")
    for requirement in traffic.REQUIREMENTS:
        for claim in data.requirements()[requirement].claims:
            checks[claim].add(f"{traffic.NAME}#{requirement}")
    return Frozen(data.spec_version(), {claim: frozenset(ids) for claim, ids in checks.items()})


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
    """Return the path of the set of a version."""
    return data.sets_directory() / f"{spec}.json"


def counted(spec: str | None) -> Frozen | None:
    """Return the checks that count; None for all, before the release of the specification.

    Args:
        spec: The requested version; None for the current one.
    """
    if spec is None and "-" in data.spec_version():
        return None
    return load(spec or data.spec_version())


def checks_of(spec: str) -> Mapping[str, frozenset[str]]:
    """Return claim to checks of a version; nothing if the suite does not have its set."""
    return load(spec).claims if spec in _versions() else {}


def load(spec: str) -> Frozen:
    """Return the set of a version.

    Raises:
        Usage: The version has no set.
        SuiteFault: The file is wrong.
    """
    known = _versions()
    if spec not in known:
        raise Usage(f"no set of checks for version {spec!r}; expected one of {', '.join(known)}")
    path = path_of(spec)
    try:
        raw = json.loads(path.read_bytes())
        checks: dict[str, set[str]] = {claim: set() for claim in data.CLAIMS}
        for case, claims in raw["cases"].items():
            for claim, requirements in claims.items():
                checks[claim] |= {f"{case}#{requirement}" for requirement in requirements}
        return Frozen(raw["spec"], {claim: frozenset(names) for claim, names in checks.items()})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SuiteFault(f"cannot read a file of the suite: {path}: {error!r}") from None


def _versions() -> list[str]:
    return sorted(path.stem for path in data.sets_directory().glob("*.json"))
