"""The conformance suite of a checkout: its cases, and its runs of genuine Sidekiq."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from jobwire_conformance import data
from jobwire_conformance.spec import published
from jobwire_conformance.spec.citations import Citations
from jobwire_conformance.spec.document import Document, Malformed, Requirement, read

__all__ = ["cases", "dropped", "recorded", "reported"]

_CASES = "conformance/cases"
_CHECK = re.compile(r'"check": "([A-Z]+-[0-9]+)"')

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


def dropped(root: Path, document: Document) -> Iterator[tuple[int, str]]:
    """Yield line and problem of each requirement that lost a check and kept its text.

    A check that goes because it asked too much leaves a text that asks too much, so both change in
    one commit. The last commit and the one before it are compared with the checkout: the first
    finds what is not committed yet, the second what the last commit did. Of a merge, that is the
    whole branch. There is nothing to compare without git.
    """
    now = _steps(path.read_text("utf-8") for path in (root / _CASES).rglob("*.json"))
    found: dict[str, tuple[int, str]] = {}
    for revision in ("HEAD", "HEAD^"):
        text = published.show(root, revision, "SPEC.md")
        before = _steps([published.grep(root, revision, '"check": "', _CASES)])
        if text is None or not before:
            continue
        try:
            old = read(text).by_id
        except Malformed:
            continue
        for requirement in document.requirements:
            name = requirement.id
            if name not in old or now[name] >= before[name] or requirement.retired is not None:
                continue
            if _obligation(old[name]) == _obligation(requirement):
                problem = (
                    f"{name}: {before[name]} checks became {now[name]}, and its block is as it was"
                )
                found.setdefault(name, (requirement.line, problem))
    yield from found.values()


def _steps(texts: Iterable[str]) -> Counter[str]:
    """Return id to the number of checks in cases."""
    return Counter(name for text in texts for name in _CHECK.findall(text))


def _obligation(requirement: Requirement) -> tuple[object, ...]:
    return requirement.sha256, requirement.level, requirement.generations, requirement.claims


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
    return found | reported(root, _OBSERVED)


def reported(root: Path, statuses: Container[str] = ("pass",)) -> set[str]:
    """Return the ids that a stored report of genuine Sidekiq has with one of these statuses."""
    reports = sorted((root / "conformance" / "reports" / "sidekiq").glob("*.json"))
    if not reports:
        return set()
    from jobwire_conformance.reports import summary

    return {
        check["requirement"]
        for path in reports
        for check in summary.load(path)["checks"]
        if check["status"] in statuses
    }
