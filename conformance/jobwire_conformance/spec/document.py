"""The reader of the specification: requirement blocks, the lines outside them, profiles, errata.

The specification is SPEC.md and the parts of it in spec/. They are read as one document, whose
lines are numbered through; `Document.place` returns the file and its own line.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

__all__ = [
    "AREAS",
    "CITATION",
    "GENERATIONS",
    "KEYWORDS",
    "PARTS",
    "TESTS",
    "Document",
    "Fence",
    "Malformed",
    "Profile",
    "Requirement",
    "Section",
    "keywords_of",
    "parts",
    "read",
    "read_checkout",
]

AREAS = (
    *("ENV", "KEY", "PAY", "GEN", "PUSH", "BULK", "SCHED", "FETCH", "EXEC", "RETRY", "DEAD"),
    *("BEAT", "STAT", "SIG", "LUA", "REL", "GUAR", "INSP", "ITER", "MET", "SEC", "SRV"),
)
PARTS = (
    *("SPEC.md", "spec/robust.md", "spec/reliable.md", "spec/iteration.md", "spec/metrics.md"),
    *("spec/inspection.md", "spec/lookup.md", "spec/examples.md"),
)
"""The files of the specification, in reading order. The annexes in spec/ are not among them."""
KEYWORDS = ("MUST NOT", "MUST", "SHOULD NOT", "SHOULD", "MAY")
GENERATIONS = ("6.4", "7.3", "8.1")
"""The generations of the protocol, each by the release of Sidekiq that it is observed from."""
TESTS = ("wire", "state", "outcome", "hook")
"""The kinds of tests, by the place that a check looks at. Another is `none`, with a reason."""
CITATION = re.compile(r"(?<![\w-])(?:X-(?!NAME-)[A-Z]+|" + "|".join(AREAS) + r")-\d+(?![\w-])")
"""An id in any text. It begins with one of the areas, so "UTF-8" in prose is not an id.

The areas of annexes begin with `X-`; `X-NAME` is the one of their template.
"""

_HEAD = re.compile(
    r"> \*\*\[(?P<id>(?:X-)?[A-Z]+-(?:0|[1-9]\d*))\]\*\*"
    r" · (?P<claims>[a-z]+/[a-z]+(?:, [a-z]+/[a-z]+)*)"
    r" · (?P<level>interop|robust)"
    r" · (?P<generations>all|6\.4(?:, (?:7\.3|8\.1))?|7\.3(?:, 8\.1)?|8\.1)"
    r" · since (?P<since>\d+\.\d+)"
    r"(?: · retired (?P<retired>\d+\.\d+))?"
    rf" · test: (?P<test>{'|'.join(TESTS)}|none \([^()]+\))"
)
_HEADING = re.compile(
    r"#{2,3} (?:(?P<number>R?\d+(?:\.\d+)?)|Appendix (?P<letter>[A-Z]):) (?P<title>.+)"
)
_BOLD = re.compile(r"\*\*([^*]+)\*\*")
_VERSION = re.compile(r"^Version \*\*(\d+\.\d+(?:\.\d+)?(?:-(?:draft|rc)\.\d+)?)\*\*", re.MULTILINE)
_PROFILES = "| Profile | Requires | Purpose |"  # the head of their table
_PROFILE = re.compile(r"\| (?P<profile>[a-z]+/[a-z]+) \|(?P<requires>[^|]*)\| (?P<purpose>.*) \|")
_ERRATUM = re.compile(r"\| (?P<version>\d+\.\d+(?:\.\d+)?) \| (?P<id>[A-Z]+-\d+) \| .*\|")
# The heading above the examples of a requirement, in the file of all examples.
_HEADING_OF_ID = re.compile(rf"### Examples of (?P<id>{CITATION.pattern})")
# Examples in these languages show what a requirement asks for.
_SHOWING = frozenset(["json", "redis-cli"])


class Malformed(ValueError):
    """The first line of a block in SPEC.md does not have the form of one."""


@dataclass(frozen=True)
class Requirement:
    """One block of SPEC.md, with the paragraphs that explain it."""

    id: str
    claims: tuple[str, ...]  # role and profile, without the level
    level: str  # "interop" or "robust"
    generations: tuple[str, ...]
    since: str
    retired: str | None
    test: str
    text: str  # the normative sentences, lines as in the document
    line: int
    why: str | None  # the paragraph right after the block, if it is the reason
    seen: str | None
    section: str = ""  # its number

    @property
    def area(self) -> str:
        return self.id.rpartition("-")[0]

    @property
    def number(self) -> int:
        return int(self.id.rpartition("-")[2])

    @property
    def keyword(self) -> str:
        """The first bold words; a lint checks that there are no others."""
        return next(iter(keywords_of(self.text)), "")

    @property
    def test_kind(self) -> str:
        """One of `TESTS`, or "none"."""
        return self.test.partition(" ")[0]

    @property
    def test_reason(self) -> str | None:
        """The reason why a black box cannot see it; None if it can."""
        _, _, reason = self.test.partition(" ")
        return reason.strip("()") or None

    @property
    def is_obligation(self) -> bool:
        return self.keyword in ("MUST", "MUST NOT") and self.retired is None

    @property
    def sha256(self) -> str:
        """The hash of the text, which does not depend on its line breaks."""
        return hashlib.sha256(" ".join(self.text.split()).encode()).hexdigest()

    def as_data(self) -> dict[str, Any]:
        """Return it as the JSON of `jobwire spec` and of `requirements.json`."""
        return {
            "id": self.id,
            "section": self.section,
            "claims": list(self.claims),
            "level": self.level,
            "generations": list(self.generations),
            "keyword": self.keyword,
            "since": self.since,
            "retired": self.retired,
            "test": {"kind": self.test_kind, "reason": self.test_reason},
            "text": self.text,
            "why": self.why,
            "seen_in": self.seen,
            "sha256": self.sha256,
        }


@dataclass(frozen=True)
class Section:
    """A section, a section of a section, or an appendix.

    Attributes:
        number: `13`, `24.1`, or the letter of an appendix.
        title: The heading without the number.
        line: The line of the heading.
    """

    number: str
    title: str
    line: int

    @property
    def anchor(self) -> str:
        """The part of a link after `#`, as renderers of Markdown make it."""
        name = f"appendix {self.number}" if self.number.isalpha() else self.number
        kept = re.sub(r"[^\w -]", "", f"{name} {self.title}".lower())
        return kept.replace(" ", "-")


@dataclass(frozen=True)
class Profile:
    """One row of the table of profiles in section 2.

    Attributes:
        name: Role and profile, such as `client/bulk`.
        requires: The claims that an implementation of it also has to meet.
        purpose: The work of such an implementation.
    """

    name: str
    requires: tuple[str, ...]
    purpose: str


@dataclass(frozen=True)
class Fence:
    """A fenced example.

    Attributes:
        line: The first line of its content.
        shows: The requirements that it is an example of: those that the paragraph right before it
            names, if it ends with a colon; otherwise that of the heading, or the block, before it
            in the same section.
    """

    language: str
    text: str
    line: int
    shows: tuple[str, ...] = ()


@dataclass(frozen=True)
class Document:
    """The content of a specification.

    Attributes:
        parts: The files with their first lines, in order.
    """

    version: str | None
    requirements: tuple[Requirement, ...]
    outside: tuple[tuple[int, str], ...]  # numbered lines that are in no block
    fences: tuple[Fence, ...]
    profiles: dict[str, Profile]  # by name, from the table of section 2
    errata: frozenset[tuple[str, str]]  # (version, id)
    sections: tuple[Section, ...] = ()
    parts: tuple[tuple[int, str], ...] = ()

    def place(self, line: int) -> str:
        """Return the file and the line in it, as `spec/robust.md:17`, of a line of the document."""
        return "{}:{}".format(*_place(self.parts, line))

    def file(self, line: int) -> str:
        """Return the file of a line of the document."""
        return _place(self.parts, line)[0]

    @property
    def is_draft(self) -> bool:
        """True before the release: a draft, or a candidate for the release."""
        return self.version is None or "-" in self.version

    @property
    def by_id(self) -> dict[str, Requirement]:
        return {requirement.id: requirement for requirement in self.requirements}

    def examples(self, identifier: str) -> list[Fence]:
        """Return the examples that show a requirement."""
        return [fence for fence in self.fences if identifier in fence.shows]


def keywords_of(text: str) -> list[str]:
    """Return all bold words of a block's text."""
    return _BOLD.findall(text)


def parts(root: Path) -> dict[str, str]:
    """Return the files of the specification in a directory, with their texts."""
    return {name: (root / name).read_text("utf-8") for name in PARTS if (root / name).is_file()}


def read_checkout(root: Path) -> Document:
    """Read the specification in a directory.

    Raises:
        Malformed: A block's first line does not have the form that section 2 shows.
    """
    return read(parts(root))


def read(source: str | Mapping[str, str], place: str = "SPEC.md") -> Document:
    """Read a specification, or an annex.

    Args:
        source: The content of the file, or those of several files by their names.
        place: The name of the file, for messages.

    Raises:
        Malformed: A block's first line does not have the form that section 2 shows.
    """
    texts = {place: source} if isinstance(source, str) else source
    text = ""
    files: list[tuple[int, str]] = []
    for name, content in texts.items():
        files.append((text.count("\n") + 1, name))
        text += content if content.endswith("\n") else f"{content}\n"
    lines = text.splitlines()
    requirements: list[Requirement] = []
    outside: list[tuple[int, str]] = []
    fences: list[Fence] = []
    sections: list[Section] = []
    headed = ""  # the id that the last heading consists of
    number = 0
    while number < len(lines):
        line = lines[number]
        start = number
        number += 1
        if line.startswith("```"):
            while number < len(lines) and not lines[number].startswith("```"):
                number += 1
            language = line.strip("` ")
            shows: tuple[str, ...] = ()
            if language in _SHOWING:
                since = sections[-1].line if sections else 0
                before = [each.id for each in requirements if each.line > since]
                shows = _shown(lines[:start], headed or (before[-1] if before else ""))
            text_of = "\n".join(lines[start + 1 : number])
            fences.append(Fence(language, text_of, start + 2, shows))
            number += 1
            outside += enumerate(lines[start:number], start + 1)
        elif line.startswith(">"):
            while number < len(lines) and lines[number].startswith(">"):
                number += 1
            section = sections[-1].number if sections else ""
            if (head := _HEAD.fullmatch(line)) is None:
                file, own = _place(files, start + 1)
                raise Malformed(f"{file}:{own}: not the first line of a block: {line}")
            requirements.append(replace(_block(head, lines, start, number), section=section))
        else:
            if line.startswith("#"):
                name_of = _HEADING_OF_ID.fullmatch(line)
                headed = name_of["id"] if name_of else ""
            if heading := _HEADING.fullmatch(line):
                name = heading["number"] or heading["letter"]
                sections.append(Section(name, heading["title"], number))
            outside.append((number, line))
    version = _VERSION.search(text)
    return Document(
        version=version and version[1],
        requirements=tuple(requirements),
        outside=tuple(outside),
        fences=tuple(fences),
        profiles={profile.name: profile for profile in _profiles(outside)},
        errata=frozenset(
            (row["version"], row["id"]) for _, line in outside if (row := _ERRATUM.fullmatch(line))
        ),
        sections=tuple(sections),
        parts=tuple(files),
    )


def _place(files: Sequence[tuple[int, str]], line: int) -> tuple[str, int]:
    """Return file and line in it of a line of the document."""
    first, file = next(part for part in reversed(files) if part[0] <= line)
    return file, line - first + 1


def _shown(before: list[str], default: str) -> tuple[str, ...]:
    """Return the ids that an example shows, from the lines before it."""
    paragraph: list[str] = []
    for line in reversed(before):
        if line.strip():
            paragraph.insert(0, line)
        elif paragraph:
            break
    introduction = "\n".join(paragraph)
    if introduction.endswith(":") and (named := CITATION.findall(introduction)):
        return tuple(dict.fromkeys(named))
    return (default,) if default else ()


def _profiles(outside: list[tuple[int, str]]) -> Iterator[Profile]:
    lines = [line for _, line in outside]
    for line in lines[lines.index(_PROFILES) + 2 :] if _PROFILES in lines else ():
        row = _PROFILE.fullmatch(line)
        if row is None:
            break
        requires = tuple(claim.strip() for claim in row["requires"].split(",") if claim.strip())
        yield Profile(row["profile"], requires, row["purpose"])


def _block(head: re.Match[str], lines: list[str], start: int, end: int) -> Requirement:
    notes = _paragraphs(lines, end)
    return Requirement(
        id=head["id"],
        claims=tuple(head["claims"].split(", ")),
        level=head["level"],
        generations=_generations(head["generations"]),
        since=head["since"],
        retired=head["retired"],
        test=head["test"],
        text="\n".join(line.removeprefix(">").strip() for line in lines[start + 1 : end]),
        line=start + 1,
        why=_starting("Why: ", notes[:1]),
        seen=_starting("Seen in: ", notes),
    )


def _generations(text: str) -> tuple[str, ...]:
    return GENERATIONS if text == "all" else tuple(text.split(", "))


def _paragraphs(lines: list[str], number: int) -> list[str]:
    """Return the paragraphs from a line on, up to the next block or heading."""
    paragraphs: list[list[str]] = [[]]
    for line in lines[number:]:
        if line.startswith((">", "#", "```", "|")):
            break
        if line.strip():
            paragraphs[-1].append(line)
        elif paragraphs[-1]:
            paragraphs.append([])
    return ["\n".join(paragraph) for paragraph in paragraphs if paragraph]


def _starting(words: str, paragraphs: list[str]) -> str | None:
    for paragraph in paragraphs:
        if paragraph.startswith(words):
            return paragraph.removeprefix(words)
    return None
