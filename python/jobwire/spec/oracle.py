"""Which requirements real Sidekiq bears out, by test or recording, and why others are not run."""

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
    """Return the versions of which a fixture shows the requirement that is cited so."""
    directories = {place.removeprefix("fixtures/sidekiq/") for place in kinds.get("fixture", [])}
    return [v for v in VERSIONS if any(each.startswith(f"{v}/") for each in directories)]


def evidence(requirement: Requirement, kinds: Mapping[str, list[str]], document: Document) -> str:
    """Say in a few words what bears a requirement out; `""` for nothing."""
    if any(place.startswith("python/tests/interop/") for place in kinds.get("test", [])):
        return "test"
    if versions := recorded(kinds):
        whole = len(versions) == len(VERSIONS)
        return "recording" if whole else f"recording of {', '.join(versions)}"
    if requirement.id in differing(document):
        return "differs"
    if requirement.id in not_run(document):
        return "not run"
    return "" if _is_sidekiqs(requirement) else "ours"


def faults(
    document: Document, citations: Mapping[str, Mapping[str, list[str]]]
) -> Iterator[tuple[Requirement, str, str]]:
    """Yield requirement, lint and problem.

    Of what Sidekiq does too, each requirement has a test or a recording of the real thing, or
    appendix A says why it has none. Where its generations differ, the block says how.
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
                "no test with Sidekiq and no recording of it; without, appendix A has to say why",
            )
        elif requirement.id in idle and evidence(requirement, kinds, document) in (
            "test",
            "recording",
        ):
            yield (
                requirement,
                "oracle",
                "appendix A says that it was not run against Sidekiq; it was",
            )
        if requirement.seen is not None:
            if _VERSION.search(requirement.seen) is None:
                yield requirement, "seen-in", "the line 'Seen in: …' names no generation"
            continue
        versions = recorded(kinds)
        if requirement.id in differ:
            reason = "appendix A lists it"
        elif found := _SPEAKS_OF_VERSIONS.search(f"{requirement.text}\n{requirement.why}"):
            reason = f"it speaks of {found[0]}"
        elif versions and len(versions) < len(VERSIONS):
            reason = f"only fixtures of {', '.join(versions)} show it"
        else:
            continue
        yield requirement, "seen-in", f"no paragraph 'Seen in: …', and {reason}"


def _is_sidekiqs(requirement: Requirement) -> bool:
    """Whether it is of a profile that Sidekiq has, too."""
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
