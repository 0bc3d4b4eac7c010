"""requirements.json: the requirements as data, and the rules for their changes.

schema/requirements.schema.json describes the file. It is not committed: wheel, sdist and site get
it, and a checkout makes its content from the text in a tenth of a second.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobwire_conformance.spec import sidekiq_evidence
from jobwire_conformance.spec.annexes import Annex, read_all
from jobwire_conformance.spec.document import Document, Requirement, read_checkout

__all__ = ["FORMAT", "Record", "build", "forbidden", "of_checkout", "render"]

Record = Mapping[str, Any]
FORMAT = 2
_PARTS = ("profiles", "sections", "requirements", "annexes")


def build(
    document: Document,
    checks: Mapping[str, Sequence[str]] | None = None,
    annexes: Sequence[Annex] = (),
) -> dict[str, Any]:
    """Return the record of a document.

    Args:
        document: The specification as it is now.
        checks: Id to the cases of the conformance suite that check it.
        annexes: The annexes of the document.
    """
    differing = sidekiq_evidence.differing(document)
    return {
        "format": FORMAT,
        "version": document.version,
        "profiles": _profiles(document),
        "sections": [
            {
                "number": section.number,
                "title": section.title,
                "file": document.file(section.line),
                "anchor": section.anchor,
            }
            for section in document.sections
        ],
        "requirements": [
            _entry(requirement, document)
            | {
                "deviations": _versions(differing.get(requirement.id)),
                "checks": list((checks or {}).get(requirement.id, ())),
            }
            for requirement in document.requirements
        ],
        "annexes": [
            {
                "name": annex.name,
                "title": annex.title,
                "area": annex.area,
                "status": annex.status,
                "since": annex.since,
                "implementations": list(annex.implementations),
                "profiles": _profiles(annex.document),
                "requirements": [
                    _entry(requirement, annex.document)
                    | {"deviations": [], "checks": list((checks or {}).get(requirement.id, ()))}
                    for requirement in annex.document.requirements
                ],
            }
            for annex in annexes
        ],
    }


def of_checkout(root: Path, checks: Mapping[str, Sequence[str]] | None = None) -> dict[str, Any]:
    """Return the record of the text in a checkout, with its annexes.

    Raises:
        Malformed: A block or an annex does not have the form of one.
    """
    return build(read_checkout(root), checks, read_all(root))


def render(record: Record) -> str:
    """Return the record as text with one requirement on each line, for readable diffs."""
    head = [f'"{name}": {json.dumps(record[name])}' for name in ("format", "version")]
    parts = []
    for part in _PARTS:
        lines = ",\n".join(_line(entry) for entry in record[part])
        parts.append(f'"{part}": [\n{lines}\n]' if lines else f'"{part}": []')
    return "{\n" + ",\n".join(head + parts) + "\n}\n"


def forbidden(document: Document, before: Document) -> Iterable[tuple[int, str, str]]:
    """Yield line, id and reason of every change that the change policy does not allow.

    `before` is an earlier version. An id is permanent from its first draft on. Its text may change
    in drafts. After a release, the text may change only as an erratum, or when the block is
    retired.
    """
    now = document.by_id
    by_text = {requirement.sha256: requirement for requirement in document.requirements}
    for old in before.requirements:
        name = old.id
        requirement = now.get(name)
        moved = by_text.get(old.sha256)
        if requirement is None:
            if moved is not None:
                yield moved.line, moved.id, f"was {name}: ids are never renumbered"
            else:
                yield 1, name, "was removed: keep the block, marked 'retired <version>'"
            continue
        if moved is not None and moved.id != name:
            yield moved.line, moved.id, f"has the text of {name}: ids are never renumbered"
        if (
            not before.is_draft
            and old.sha256 != requirement.sha256
            and requirement.retired is None
            and (_release(document), name) not in document.errata
        ):
            yield (
                requirement.line,
                name,
                "differs from its released text: list it as an erratum of "
                f"{_release(document)}, or retire it and add a new id",
            )


def _entry(requirement: Requirement, document: Document) -> dict[str, Any]:
    examples = [
        {"language": example.language, "text": example.text}
        for example in document.examples(requirement.id)
    ]
    return requirement.as_data() | {"examples": examples}


def _versions(listed: str | None) -> list[str]:
    return listed.split(", ") if listed else []


def _profiles(document: Document) -> list[dict[str, Any]]:
    return [
        {"profile": profile.name, "requires": list(profile.requires), "purpose": profile.purpose}
        for profile in document.profiles.values()
    ]


def _line(entry: Record) -> str:
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":"))


def _release(document: Document) -> str:
    return (document.version or "").partition("-")[0]
