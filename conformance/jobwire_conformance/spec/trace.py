"""Traceability: the files that cite each requirement, as an index and as a page."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence

from jobwire_conformance.spec import sidekiq_evidence
from jobwire_conformance.spec.citations import KINDS, Citations
from jobwire_conformance.spec.document import Document, Requirement

__all__ = ["index", "page", "without"]

_COLUMNS = tuple(kind for kind in KINDS if kind != "prose")


def index(citations: Citations) -> str:
    """Return the citations as JSON, one requirement on each line."""
    lines = ",\n".join(
        f"{json.dumps(identifier)}:{json.dumps(kinds, separators=(',', ':'))}"
        for identifier, kinds in citations.items()
    )
    return f"{{\n{lines}\n}}\n"


def without(
    kind: str,
    document: Document,
    citations: Mapping[str, Mapping[str, list[str]]],
    checks: Mapping[str, Sequence[str]] | None = None,
) -> list[Requirement]:
    """Return the requirements in force without a citation of a kind.

    A requirement that a black box cannot see needs no test; its block tells so. A case of the
    conformance suite is a test as well.

    Args:
        checks: Id to the cases of the conformance suite that check it.
    """
    seen = checks or {}
    return [
        requirement
        for requirement in document.requirements
        if requirement.retired is None
        and not (kind == "test" and (requirement.test.startswith("none") or requirement.id in seen))
        and not citations.get(requirement.id, {}).get(kind)
    ]


def page(
    document: Document,
    citations: Citations,
    checks: Mapping[str, Sequence[str]] | None = None,
    reported: Container[str] = (),
) -> str:
    """Return the citations as a page.

    Args:
        checks: Id to the cases of the conformance suite that check it.
        reported: The ids that a stored report of Sidekiq shows to be met.
    """
    checks = checks or {}
    lines = [
        "# Traceability",
        "",
        "Made by `jobwire spec trace --write`.",
        "",
        "This page lists the files that cite each requirement of [the specification](../SPEC.md)",
        f"{document.version}; `jobwire spec <id>` lists the functions and tests. Not every",
        "requirement needs a schema, a script or a fixture, so an empty cell there is not a gap.",
        "The column Sidekiq shows the evidence: a test with real Sidekiq, a recording or a report",
        "of it, or that it differs, as appendix A says. The other rules are only jobwire's. The",
        "column Cases lists cases of the conformance suite, as schema/requirements.json does.",
        "",
        "| | Requirements |",
        "| --- | --- |",
        f"| in force | {sum(r.retired is None for r in document.requirements)} |",
        f"| obligations (MUST, MUST NOT) | {sum(r.is_obligation for r in document.requirements)} |",
        f"| that a black box cannot see | {sum(_is_unseen(r) for r in document.requirements)} |",
        "",
        "## Gaps",
        "",
        *_gaps("test", "a test", document, citations, checks),
        *_gaps("code", "code", document, citations, checks),
        "",
        "## Table",
        "",
        "| Requirement | Keyword | Seen in | Sidekiq | "
        + " | ".join(map(str.capitalize, _COLUMNS))
        + " | Cases |",
        "| --- " * (5 + len(_COLUMNS)) + "|",
    ]
    for requirement in document.requirements:
        kinds = citations.get(requirement.id, {})
        cells = [_names(kinds.get(kind, [])) for kind in _COLUMNS]
        cells.append(", ".join(checks.get(requirement.id, ())))
        keyword = requirement.keyword if requirement.retired is None else "retired"
        seen = requirement.test_kind
        asked = sidekiq_evidence.evidence(requirement, kinds, document, reported)
        lines.append(f"| {requirement.id} | {keyword} | {seen} | {asked} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _gaps(
    kind: str,
    named: str,
    document: Document,
    citations: Citations,
    checks: Mapping[str, Sequence[str]],
) -> list[str]:
    found = without(kind, document, citations, checks)
    return [
        f"- Obligations without {named}: {_listed([r for r in found if r.is_obligation])}",
        f"- Others without {named}: {_listed([r for r in found if not r.is_obligation])}",
    ]


def _is_unseen(requirement: Requirement) -> bool:
    return requirement.retired is None and requirement.test.startswith("none")


def _listed(requirements: Iterable[Requirement]) -> str:
    return ", ".join(requirement.id for requirement in requirements) or "none"


def _names(places: Iterable[str]) -> str:
    """Return the files of places, each once and without the common directories."""
    files = dict.fromkeys(place.partition("::")[0] for place in places)
    prefixes = (
        "python/jobwire/",
        "python/tests/",
        "conformance/tests/",
        "schema/",
        "lua/",
        "fixtures/",
    )
    return ", ".join(
        next((f.removeprefix(p) for p in prefixes if f.startswith(p)), f).rsplit(".", 1)[0]
        for f in files
    )
