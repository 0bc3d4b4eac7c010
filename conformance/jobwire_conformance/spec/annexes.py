"""The annexes of the specification: files of spec/ with requirements of their own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobwire_conformance.spec.document import (
    PARTS,
    Document,
    Malformed,
    Profile,
    Requirement,
    read,
)

__all__ = ["DIRECTORY", "Annex", "by_id", "faults", "profiles", "read_all"]

DIRECTORY = "spec"
_NOT_ANNEXES = {"README.md", "template.md", *(Path(part).name for part in PARTS)}
_LEAST_IMPLEMENTATIONS = 2  # of a stable annex
_HEAD = re.compile(
    r"^Annex \*\*(?P<area>X-[A-Z]+)\*\* · status \*\*(?P<status>experimental|stable)\*\*"
    r" · since \*\*(?P<since>\d+\.\d+)\*\*$",
    re.MULTILINE,
)
_IMPLEMENTATIONS = "| Implementation | Version | Report |"


@dataclass(frozen=True)
class Annex:
    """One annex.

    Attributes:
        path: Its file, from the root of the checkout.
        area: The part of its ids before the number, such as `X-CRON`.
        status: "experimental" or "stable".
        implementations: The programs that meet its claims.
    """

    path: str
    title: str
    area: str
    status: str
    since: str
    document: Document
    implementations: tuple[str, ...]

    @property
    def name(self) -> str:
        return Path(self.path).stem


def read_all(root: Path) -> list[Annex]:
    """Return the annexes of a checkout.

    Raises:
        Malformed: A file is not an annex, or contains a block of another form.
    """
    paths = sorted((root / DIRECTORY).glob("*.md"))
    return [_read(root, path) for path in paths if path.name not in _NOT_ANNEXES]


def by_id(annexes: Sequence[Annex]) -> dict[str, Requirement]:
    """Return the requirements of annexes."""
    return {
        requirement.id: requirement
        for annex in annexes
        for requirement in annex.document.requirements
    }


def faults(annexes: list[Annex], document: Document) -> Iterator[tuple[str, int, str]]:
    """Yield file, line and problem of each fault that concerns an annex alone.

    Args:
        annexes: The annexes.
        document: The specification that they belong to.
    """
    areas: dict[str, str] = {}
    for annex in annexes:
        if annex.area in areas:
            yield annex.path, 1, f"{annex.area} is the area of {areas[annex.area]}"
        areas.setdefault(annex.area, annex.path)
        for requirement in annex.document.requirements:
            if requirement.area != annex.area:
                problem = f"{requirement.id} is not in the area of this annex, {annex.area}"
                yield annex.path, requirement.line, problem
        for name in annex.document.profiles:
            if name in document.profiles:
                yield (
                    annex.path,
                    1,
                    f"{name} is a profile of the specification; choose another name",
                )
        asked = {claim for each in annex.document.requirements for claim in each.claims}
        for name in annex.document.profiles.keys() - asked:
            yield annex.path, 1, f"no requirement belongs to {name}"
        if annex.status == "stable" and len(annex.implementations) < _LEAST_IMPLEMENTATIONS:
            yield (
                annex.path,
                1,
                f"a stable annex needs {_LEAST_IMPLEMENTATIONS} independent implementations, and "
                f"its table has {len(annex.implementations)}",
            )


def profiles(annex: Annex, document: Document) -> dict[str, Profile]:
    """Return the profiles that the blocks of an annex may name."""
    return {**document.profiles, **annex.document.profiles}


def _read(root: Path, path: Path) -> Annex:
    place = path.relative_to(root).as_posix()
    text = path.read_text("utf-8")
    head = _HEAD.search(text)
    if head is None:
        line = "Annex **X-NAME** · status **experimental** · since **1.0**"
        raise Malformed(f"{place}:1: no line has the form '{line}'")
    document = read(text, place)
    lines = [line for _, line in document.outside]
    rows = lines[lines.index(_IMPLEMENTATIONS) + 2 :] if _IMPLEMENTATIONS in lines else []
    implementations = []
    for line in rows:
        if not line.startswith("|"):
            break
        implementations.append(line.strip("| ").partition(" |")[0])
    title = text.partition("\n")[0].removeprefix("# ")
    return Annex(
        path=place,
        title=title,
        area=head["area"],
        status=head["status"],
        since=head["since"],
        document=document,
        implementations=tuple(implementations),
    )
