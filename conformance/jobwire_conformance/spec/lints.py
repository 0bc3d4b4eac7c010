"""Lints of the specification and of its citations."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from jobwire_conformance.spec import (
    annexes,
    checks,
    examples,
    form_lints,
    mistakes,
    record,
    registry,
    scripts,
    sheet,
    sidekiq_evidence,
    trace,
)
from jobwire_conformance.spec.citations import Citations
from jobwire_conformance.spec.document import (
    AREAS,
    CITATION,
    GENERATIONS,
    KEYWORDS,
    Document,
    Malformed,
    Profile,
    Requirement,
    keywords_of,
)

__all__ = [
    "Fault",
    "annexed",
    "of_annexes",
    "of_citations",
    "of_document",
    "of_evidence",
    "of_form",
    "of_gaps",
    "of_history",
    "of_records",
]

# RFC 2119, upper case only.
_KEYWORD = re.compile(r"\b(?:MUST|SHALL|SHOULD|MAY|REQUIRED|RECOMMENDED|OPTIONAL)\b")
_QUOTED = re.compile(r'"[A-Z ]+"')  # the text of BCP 14 in section 2
_BOLD = re.compile(r"\*\*[^*]+\*\*")


class Fault(NamedTuple):
    """One fault.

    Attributes:
        place: File, with the line if it is known.
        lint: Short name of the check.
        problem: The problem and, if it is not obvious, the fix.
    """

    place: str
    lint: str
    problem: str

    def __str__(self) -> str:
        return f"{self.place}: {self.problem} ({self.lint})"


def of_document(document: Document, annexed: Sequence[annexes.Annex] = ()) -> Iterator[Fault]:
    """Check the specification by itself; its references may be to annexes."""
    if document.version is None:
        yield Fault("SPEC.md:1", "version", "no line begins with 'Version **1.0**'")
    if not document.requirements:
        yield Fault("SPEC.md:1", "empty", "there is no requirement block")
    yield from _ids(document)
    yield from _text(document, document.profiles)
    yield from _references(document, annexed)
    for number, problem in examples.problems(document):
        yield Fault(document.place(number), "example", problem)


def of_annexes(root: Path, document: Document) -> Iterator[Fault]:
    """Check the annexes of a checkout."""
    try:
        found = annexes.read_all(root)
    except Malformed as error:
        place, _, problem = str(error).partition(": ")
        yield Fault(place, "block", problem)
        return
    for annex in found:
        yield from _ids(annex.document)
        yield from _text(annex.document, annexes.profiles(annex, document))
    for path, line, problem in annexes.faults(found, document):
        yield Fault(f"{path}:{line}", "annex", problem)


def annexed(root: Path) -> list[annexes.Annex]:
    """Return the annexes of a checkout; none if one is malformed, which `of_annexes` reports."""
    try:
        return annexes.read_all(root)
    except Malformed:
        return []


def of_form(root: Path, document: Document, citations: Citations) -> Iterator[Fault]:
    """Check the form of the text and of the blocks of annexes.

    `jobwire spec check --strict` counts these hits as faults.
    """
    for line, lint, problem in form_lints.hits(document, checks.recorded(root, citations)):
        yield Fault(document.place(line), lint, problem)
    for annex in annexed(root):
        for lint in form_lints.OF_BLOCKS:
            for line, problem in form_lints.LINTS[lint](annex.document):
                yield Fault(f"{annex.path}:{line}", lint, problem)


def of_history(document: Document, published: Iterable[Document]) -> Iterator[Fault]:
    """Check the specification against its published versions."""
    found = (change for before in published for change in record.forbidden(document, before))
    for line, identifier, problem in dict.fromkeys(found):
        yield Fault(document.place(line), "permanent", f"{identifier}: {problem}")


def of_checks(root: Path, document: Document) -> Iterator[Fault]:
    """Check that no requirement lost a check while its text stayed."""
    for line, problem in checks.dropped(root, document):
        yield Fault(f"SPEC.md:{line}", "check-dropped", f"{problem}; change both in one commit")


def of_citations(
    document: Document, citations: Citations, annexed: Sequence[annexes.Annex] = ()
) -> Iterator[Fault]:
    """Check that every cited id exists, in the specification or in an annex."""
    known = {**document.by_id, **annexes.by_id(annexed)}
    for identifier, kinds in citations.items():
        for kind, places in kinds.items():
            for place in places:
                if identifier not in known:
                    yield Fault(place, "unknown-id", f"there is no requirement {identifier}")
                elif known[identifier].retired is not None and kind != "prose":
                    yield Fault(
                        place,
                        "retired-id",
                        f"{identifier} was retired in {known[identifier].retired}",
                    )


def of_gaps(
    document: Document,
    citations: Citations,
    annexed: Sequence[annexes.Annex] = (),
    cases: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[Fault]:
    """Check that code cites each requirement, and a test or a case if one can see it.

    Args:
        cases: Id to the cases of the conformance suite that check it.
    """
    for text in (document, *(annex.document for annex in annexed)):
        for kind in ("code", "test"):
            for requirement in trace.without(kind, text, citations, cases):
                yield Fault(
                    text.place(requirement.line),
                    f"no-{kind}",
                    f"{requirement.id}: no {kind} cites it; cite it where it belongs",
                )


def of_evidence(
    document: Document, citations: Citations, reported: Container[str] = ()
) -> Iterator[Fault]:
    """Check that real Sidekiq confirms each requirement, and that its differences are described.

    Args:
        reported: The ids that a stored report of Sidekiq shows to be met.
    """
    for requirement, lint, problem in sidekiq_evidence.faults(document, citations, reported):
        yield Fault(document.place(requirement.line), lint, f"{requirement.id}: {problem}")


def of_records(root: Path, document: Document) -> Iterator[Fault]:
    """Check that the generated files are up to date."""
    if _differs(root / "schema/registry.json", registry.render(registry.build(document))):
        yield Fault(
            "schema/registry.json",
            "out-of-date",
            "differs from the tables of the specification; to repair: make generate",
        )
    if mistakes.outdated(root):
        yield Fault(
            mistakes.place(root),
            "out-of-date",
            f"section 26 differs from {mistakes.PAGE}; to repair: make generate",
        )
    if sheet.outdated(root):
        problem = "the table of claims is out of date; to repair: make generate"
        yield Fault(sheet.PAGE, "out-of-date", problem)
    if missing := list(scripts.undescribed(root, document)):
        for name, section in missing:
            yield Fault(f"lua/{name}.lua", "script", f"has no row in section {section}")
    elif _differs(root / "lua/README.md", scripts.page(root, document)):
        yield Fault(
            "lua/README.md",
            "out-of-date",
            "differs from the scripts or the specification; to repair: make generate",
        )


def _text(document: Document, profiles: Mapping[str, Profile]) -> Iterator[Fault]:
    """Check the blocks, the words outside of them, and the table of profiles."""
    for requirement in document.requirements:
        for lint, problem in _block(requirement, profiles):
            yield Fault(document.place(requirement.line), lint, f"{requirement.id}: {problem}")
    for number, line in document.outside:
        if (word := _KEYWORD.search(_QUOTED.sub("", line))) is not None:
            yield Fault(document.place(number), "stray-keyword", f"{word[0]} outside a block")
    for profile in document.profiles.values():
        for claim in profile.requires:
            if claim.removesuffix("+robust") not in profiles:
                problem = f"{profile.name} requires {claim}, which is not in the table of profiles"
                yield Fault(document.file(1), "profile", problem)


def _ids(document: Document) -> Iterator[Fault]:
    first: dict[str, int] = {}
    for requirement in document.requirements:
        place = document.place(requirement.line)
        if requirement.id in first:
            yield Fault(
                place,
                "duplicate-id",
                f"{requirement.id} is already at {document.place(first[requirement.id])}",
            )
        elif not requirement.area.startswith("X-") and requirement.area not in AREAS:
            yield Fault(place, "area", f"{requirement.area} is not one of the known areas")
        first.setdefault(requirement.id, requirement.line)
    # A missing number means that an id was removed, or looks as if it was removed.
    for requirement in document.requirements:
        before = f"{requirement.area}-{requirement.number - 1}"
        if requirement.number > 1 and before not in first:
            problem = f"{requirement.id} exists, {before} does not"
            yield Fault(document.place(requirement.line), "gap", problem)


def _block(requirement: Requirement, profiles: Mapping[str, Profile]) -> Iterator[tuple[str, str]]:
    bold = keywords_of(requirement.text)
    if not requirement.text.strip():
        yield "keyword", "the block is empty"
    elif len(bold) != 1:
        listed = ", ".join(bold) or "none"
        yield "keyword", f"needs exactly one keyword in bold, and has {listed}"
    elif bold[0] not in KEYWORDS:
        yield "keyword", f"{bold[0]} in bold is not a keyword"
    if (word := _KEYWORD.search(_BOLD.sub("", requirement.text))) is not None:
        yield "keyword", f"{word[0]} is not in bold"
    if requirement.why is None:
        yield "why", "no paragraph 'Why: …' follows the block"
    for claim in requirement.claims:
        if claim not in profiles:
            yield "claim", f"{claim} is not in the table of profiles"
    if requirement.generations != GENERATIONS and requirement.seen is None:
        yield "generations", "needs a paragraph 'Seen in: …' that tells what the others do"


def _references(document: Document, annexed: Sequence[annexes.Annex]) -> Iterator[Fault]:
    known = {**document.by_id, **annexes.by_id(annexed)}
    lines = [
        *document.outside,
        *((requirement.line, requirement.text) for requirement in document.requirements),
    ]
    for number, text in lines:
        for identifier in CITATION.findall(text):
            if identifier not in known:
                problem = f"there is no requirement {identifier}"
                yield Fault(document.place(number), "unknown-id", problem)


def _differs(path: Path, text: str) -> bool:
    return not path.is_file() or path.read_text("utf-8") != text
