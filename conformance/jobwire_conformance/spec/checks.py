"""The conformance suite of a checkout: its cases, and its runs of genuine Sidekiq."""

from __future__ import annotations

from pathlib import Path

from jobwire_conformance import data
from jobwire_conformance.spec.citations import Citations

__all__ = ["cases", "recorded"]

# A check with another status did not observe its requirement.
_OBSERVED = frozenset(["pass", "warn", "deviation", "fail"])


def cases(root: Path) -> dict[str, list[str]]:
    """Return id to the names of the cases that check it, sorted.

    `traffic` stands for the judge, which looks at the traffic of all cases. A checkout without the
    suite has no cases.
    """
    directory = root / "conformance" / "cases"
    if not directory.is_dir():
        return {}
    from jobwire_conformance import judge

    names: dict[str, set[str]] = {name: {judge.TRAFFIC} for name in judge.IN_EVERY_CASE}
    for name, (_, case) in data.cases(directory).items():
        for identifier in data.checked(case):
            names.setdefault(identifier, set()).add(name)
    return {identifier: sorted(found) for identifier, found in names.items()}


def recorded(root: Path, citations: Citations) -> set[str]:
    """Return the ids with a recorded run of genuine Sidekiq.

    That is a test with Sidekiq that names the id, a recording of Sidekiq that covers it, or a
    check of it in a stored report of Sidekiq.
    """
    found = {
        identifier
        for identifier, kinds in citations.items()
        if any(place.startswith("python/tests/interop/") for place in kinds.get("test", ()))
        or any(place.startswith("fixtures/sidekiq/") for place in kinds.get("fixture", ()))
    }
    reports = sorted((root / "conformance" / "reports" / "sidekiq").glob("*.json"))
    if reports:
        from jobwire_conformance.reports import summary

        for path in reports:
            checks = summary.load(path)["checks"]
            found |= {check["requirement"] for check in checks if check["status"] in _OBSERVED}
    return found
