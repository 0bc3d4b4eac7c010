"""Evidence from real Sidekiq for each interop requirement: a test, a recording or a report."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping

from jobwire_conformance.spec.document import CITATION, Document, Requirement

__all__ = ["VERSIONS", "differing", "evidence", "faults", "recorded"]

VERSIONS = ("6.4.1", "7.3.2", "8.1.7")

_ROW = re.compile(rf"\| ({CITATION.pattern}) \| ([^|]*) \|")
# A generation, or a version, of Sidekiq.
_VERSION = re.compile(r"\b[678](?:\.\d+)*\b")
_SPEAKS_OF_VERSIONS = re.compile(
    r"\b[Gg]enerations\b|\bSidekiq (?:up to )?[678]\b|\b[678]\.\d+\b(?! s\b)"
)


def differing(document: Document) -> dict[str, str]:
    """Return the ids in appendix A, with the versions in which they do not hold."""
    found: dict[str, str] = {}
    inside = False
    for _, line in document.outside:
        if line.startswith("## "):
            inside = line.startswith("## Appendix A")
        elif inside and (row := _ROW.fullmatch(line)):
            found[row[1]] = row[2]
    return found


def recorded(kinds: Mapping[str, list[str]]) -> list[str]:
    """Return the Sidekiq versions with a fixture that cites the requirement."""
    files = {place.removeprefix("fixtures/sidekiq/") for place in kinds.get("fixture", [])}
    return [version for version in VERSIONS if any(f.startswith(f"{version}/") for f in files)]


def evidence(
    requirement: Requirement,
    kinds: Mapping[str, list[str]],
    document: Document,
    reported: Container[str] = (),
) -> str:
    """Return the kind of evidence for a requirement, in a few words; `""` for none.

    Args:
        reported: The ids that a stored report of Sidekiq shows to be met.
    """
    if any(place.startswith("python/tests/interop/") for place in kinds.get("test", [])):
        return "test"
    if versions := recorded(kinds):
        has_all = len(versions) == len(VERSIONS)
        return "recording" if has_all else f"recording of {', '.join(versions)}"
    if requirement.id in reported:
        return "report"
    if requirement.id in differing(document):
        return "differs"
    if requirement.test.startswith("none"):
        return "not visible"
    return "" if requirement.level == "interop" else "ours"


def faults(
    document: Document,
    citations: Mapping[str, Mapping[str, list[str]]],
    reported: Container[str] = (),
) -> Iterator[tuple[Requirement, str, str]]:
    """Yield requirement, lint and problem.

    Each interop requirement needs a test, a recording or a passed check with real Sidekiq. If the
    generations of Sidekiq differ, the block must describe that.

    Args:
        reported: The ids that a stored report of Sidekiq shows to be met.
    """
    differ = differing(document)
    for requirement in document.requirements:
        if requirement.retired is not None:
            continue
        kinds = citations.get(requirement.id, {})
        if not evidence(requirement, kinds, document, reported):
            yield (
                requirement,
                "evidence",
                "no test, recording or report with Sidekiq; add one, or make it robust",
            )
        if requirement.id in differ and requirement.level == "interop":
            yield requirement, "evidence", "is interop, but appendix A lists it; make it robust"
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
