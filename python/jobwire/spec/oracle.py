"""Evidence from real Sidekiq for each requirement: a test, a recording, or the reason for none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from jobwire.spec.document import CITATION, Document, Requirement

__all__ = ["VERSIONS", "differing", "evidence", "faults", "not_run", "recorded"]

VERSIONS = ("6.4.1", "7.3.2", "8.1.7")

_FIRST_CELL = re.compile(rf"\| ((?:(?:{CITATION.pattern})(?:, | to )?)+) \| (.*) \|")
_RANGE = re.compile(r"([A-Z]+)-(\d+) to \1-(\d+)")
# A generation, or a version, of Sidekiq.
_VERSION = re.compile(r"\b[678](?:\.\d+)*\b")
_SPEAKS_OF_VERSIONS = re.compile(
    r"\b[Gg]enerations\b|\bSidekiq (?:up to )?[678]\b|\b[678]\.\d+\b(?! s\b)"
)


def differing(document: Document) -> dict[str, str]:
    """Return the ids in the first table of appendix A, with the versions that differ."""
    return {
        identifier: cells[0]
        for ids, cells in _rows(document)
        if len(cells) == 2
        for identifier in ids
    }


def not_run(document: Document) -> dict[str, str]:
    """Return the ids in the second table of appendix A, with the reason."""
    return {
        identifier: cells[0]
        for ids, cells in _rows(document)
        if len(cells) == 1
        for identifier in ids
    }


def recorded(kinds: Mapping[str, list[str]]) -> list[str]:
    """Return the Sidekiq versions with a fixture that cites the requirement."""
    files = {place.removeprefix("fixtures/sidekiq/") for place in kinds.get("fixture", [])}
    return [version for version in VERSIONS if any(f.startswith(f"{version}/") for f in files)]


def evidence(requirement: Requirement, kinds: Mapping[str, list[str]], document: Document) -> str:
    """Return the kind of evidence for a requirement, in a few words; `""` for none."""
    if any(place.startswith("python/tests/interop/") for place in kinds.get("test", [])):
        return "test"
    if versions := recorded(kinds):
        has_all = len(versions) == len(VERSIONS)
        return "recording" if has_all else f"recording of {', '.join(versions)}"
    if requirement.id in differing(document):
        return "differs"
    if requirement.id in not_run(document):
        return "not run"
    return "" if _is_sidekiqs(requirement) else "ours"


def faults(
    document: Document, citations: Mapping[str, Mapping[str, list[str]]]
) -> Iterator[tuple[Requirement, str, str]]:
    """Yield requirement, lint and problem.

    Each requirement that also holds for Sidekiq needs a test or a recording with real Sidekiq, or
    a reason in appendix A. If the generations of Sidekiq differ, the block must describe that.
    """
    differ, idle = differing(document), not_run(document)
    for requirement in document.requirements:
        if requirement.retired is not None:
            continue
        kinds = citations.get(requirement.id, {})
        if not evidence(requirement, kinds, document):
            yield (
                requirement,
                "oracle",
                "no test and no recording with Sidekiq; add one, or the reason in appendix A",
            )
        elif requirement.id in idle and evidence(requirement, kinds, document) in (
            "test",
            "recording",
        ):
            yield (
                requirement,
                "oracle",
                "appendix A lists it as not run against Sidekiq, but it has a test or a recording",
            )
        if requirement.seen is not None:
            if _VERSION.search(requirement.seen) is None:
                yield requirement, "seen-in", "the paragraph 'Seen in: …' names no generation"
            continue
        versions = recorded(kinds)
        if requirement.id in differ:
            reason = "appendix A lists it"
        elif mention := _SPEAKS_OF_VERSIONS.search(f"{requirement.text}\n{requirement.why}"):
            reason = f"its text mentions {mention[0]}"
        elif versions and len(versions) < len(VERSIONS):
            reason = f"only fixtures of {', '.join(versions)} show it"
        else:
            continue
        yield requirement, "seen-in", f"needs a paragraph 'Seen in: …', because {reason}"


def _is_sidekiqs(requirement: Requirement) -> bool:
    """True if the requirement belongs to a profile that Sidekiq also has."""
    return any(not claim.endswith("/reliable") for claim in requirement.claims)


def _rows(document: Document) -> Iterator[tuple[list[str], list[str]]]:
    """Yield the ids and the other cells of every row of appendix A."""
    inside = False
    for _, line in document.outside:
        if line.startswith("## "):
            inside = line.startswith("## Appendix A")
        elif inside and (row := _FIRST_CELL.fullmatch(line)):
            ids = CITATION.findall(row[1])
            for area, first, last in _RANGE.findall(row[1]):
                ids += [f"{area}-{number}" for number in range(int(first) + 1, int(last))]
            yield ids, row[2].split(" | ")
