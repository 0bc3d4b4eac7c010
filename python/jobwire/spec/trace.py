"""Which parts of a checkout stand behind which requirement, as an index and as a page."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from jobwire.spec import oracle
from jobwire.spec.citations import KINDS, Citations
from jobwire.spec.document import Document, Requirement

__all__ = ["index", "page", "without"]

_COLUMNS = tuple(kind for kind in KINDS if kind != "prose")


def index(citations: Citations) -> str:
    """Return the citations as JSON, one requirement a line."""
    lines = ",\n".join(
        f"{json.dumps(identifier)}:{json.dumps(kinds, separators=(',', ':'))}"
        for identifier, kinds in citations.items()
    )
    return f"{{\n{lines}\n}}\n"


def without(
    kind: str, document: Document, citations: Mapping[str, Mapping[str, list[str]]]
) -> list[Requirement]:
    """Return the requirements in force that nothing of a kind cites.

    What a black box cannot see needs no test, but says so in its block.
    """
    return [
        requirement
        for requirement in document.requirements
        if requirement.retired is None
        and not (kind == "test" and requirement.test.startswith("none"))
        and not citations.get(requirement.id, {}).get(kind)
    ]


def page(document: Document, citations: Citations) -> str:
    """Return the citations as a page."""
    lines = [
        "# Traceability",
        "",
        "Made by `jobwire spec trace --write`.",
        "",
        f"What cites each requirement of [SPEC.md](../SPEC.md) {document.version}, by file;",
        "`jobwire spec <id>` names the functions and tests. Not every requirement needs a schema,",
        "a script or a fixture: an empty cell there is no gap by itself. The column Sidekiq says",
        "what bears it out: a test with the real ones, a recording of them; or that they differ or",
        "were not run (appendix A says how and why), or that the rule is ours alone.",
        "",
        "| | Requirements |",
        "| --- | --- |",
        f"| in force | {sum(r.retired is None for r in document.requirements)} |",
        f"| obligations (MUST, MUST NOT) | {sum(r.is_obligation for r in document.requirements)} |",
        f"| that a black box cannot see | {sum(_is_unseen(r) for r in document.requirements)} |",
        "",
        "## Gaps",
        "",
        f"- Obligations without a test: {_listed(_obliged('test', document, citations))}",
        f"- Others without a test: {_listed(_optional('test', document, citations))}",
        f"- Obligations without code: {_listed(_obliged('code', document, citations))}",
        f"- Others without code: {_listed(_optional('code', document, citations))}",
        "",
        "## Table",
        "",
        "| Requirement | Keyword | Seen in | Sidekiq | "
        + " | ".join(map(str.capitalize, _COLUMNS))
        + " |",
        "| --- " * (4 + len(_COLUMNS)) + "|",
    ]
    for requirement in document.requirements:
        kinds = citations.get(requirement.id, {})
        cells = [_names(kinds.get(kind, [])) for kind in _COLUMNS]
        keyword = requirement.keyword if requirement.retired is None else "retired"
        seen = requirement.test.partition(" ")[0]
        asked = oracle.evidence(requirement, kinds, document)
        lines.append(f"| {requirement.id} | {keyword} | {seen} | {asked} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _obliged(kind: str, document: Document, citations: Citations) -> list[Requirement]:
    return [r for r in without(kind, document, citations) if r.is_obligation]


def _optional(kind: str, document: Document, citations: Citations) -> list[Requirement]:
    return [r for r in without(kind, document, citations) if not r.is_obligation]


def _is_unseen(requirement: Requirement) -> bool:
    return requirement.retired is None and requirement.test.startswith("none")


def _listed(requirements: Iterable[Requirement]) -> str:
    return ", ".join(requirement.id for requirement in requirements) or "none"


def _names(places: Iterable[str]) -> str:
    """Return the files of places, each once and without the part that all share."""
    files = dict.fromkeys(place.partition("::")[0] for place in places)
    prefixes = ("python/jobwire/", "python/tests/", "schema/", "lua/", "fixtures/")
    return ", ".join(
        next((f.removeprefix(p) for p in prefixes if f.startswith(p)), f).rsplit(".", 1)[0]
        for f in files
    )
