"""SPEC.md is well-formed, and every requirement that a black box can see has a test.

The ids of the specification are permanent and cited everywhere, so this file reads them with
the one regular expression that SPEC.md promises, and compares them with the citations in code,
scripts, schemas, fixtures and tests.
"""

from __future__ import annotations

import ast
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
SPEC = ROOT / "SPEC.md"
TESTS = ROOT / "python" / "tests"
# These look at the text and the schemas; an implementation that does nothing would pass them.
ABOUT_DOCUMENTS = ("test_spec.py", "test_schema.py")

KEYWORDS = ("MUST NOT", "MUST", "SHOULD NOT", "SHOULD", "MAY")
PROFILES = {
    "client": {"core", "bulk", "scheduled", "faults"},
    "worker": {
        *("core", "retry", "monitoring", "signals", "iteration", "metrics", "reliable"),
    },
    "scheduler": {"core", "reliable"},
    "inspector": {"read", "write"},
}
AREAS = (
    *("ENV", "KEY", "PAY", "GEN", "PUSH", "BULK", "SCHED", "FETCH", "EXEC", "RETRY", "DEAD"),
    *("BEAT", "STAT", "SIG", "LUA", "REL", "INSP", "ITER", "MET", "SEC"),
)

HEAD = re.compile(
    r"> \*\*\[(?P<id>[A-Z]+-[1-9]\d*)\]\*\*"
    r" · (?P<claims>[a-z]+/[a-z]+(?:, [a-z]+/[a-z]+)*)"
    r" · since (?P<since>\d+\.\d+)"
    r" · test: (?P<test>wire|state|none \([^()]+\))"
)
BOLD = re.compile(r"\*\*([^*]+)\*\*")
KEYWORD_OUTSIDE = re.compile(
    r"\b(MUST|SHALL|SHOULD|MAY|REQUIRED|RECOMMENDED|OPTIONAL)\b"  # RFC 2119, upper case only
)
# A citation is one of the areas, so that "UTF-8" or "ISO-8601" in prose is none.
CITATION = re.compile(r"(?<![\w-])(?:" + "|".join(AREAS) + r")-\d+(?![\w-])")
BRACKETED = re.compile(r"\[([A-Z]+-\d+)\]")


@dataclass(frozen=True)
class Requirement:
    """One block of SPEC.md."""

    id: str
    claims: tuple[str, ...]
    since: str
    test: str
    body: str
    line: int
    note: str  # the paragraph after the block

    @property
    def keywords(self) -> list[str]:
        return BOLD.findall(self.body)


def parse(text: str) -> tuple[list[Requirement], list[tuple[int, str]]]:
    """Split the specification into its blocks and the numbered lines outside them."""
    lines = text.splitlines()
    found: list[Requirement] = []
    outside: list[tuple[int, str]] = []
    number, fenced = 0, False
    while number < len(lines):
        line = lines[number]
        if line.startswith("```"):
            fenced = not fenced
        if fenced or not line.startswith(">"):
            outside.append((number + 1, line))
            number += 1
            continue
        start = number
        while number < len(lines) and lines[number].startswith(">"):
            number += 1
        head = HEAD.fullmatch(lines[start])
        if head is None:
            raise ValueError(f"SPEC.md:{start + 1}: not the first line of a block: {lines[start]}")
        found.append(
            Requirement(
                id=head["id"],
                claims=tuple(head["claims"].split(", ")),
                since=head["since"],
                test=head["test"],
                body="\n".join(
                    line.removeprefix(">").strip() for line in lines[start + 1 : number]
                ),
                line=start + 1,
                note="\n".join(lines[number : number + 2]).strip(),
            )
        )
    return found, outside


REQUIREMENTS, OUTSIDE = parse(SPEC.read_text(encoding="utf-8"))
IDS = {requirement.id for requirement in REQUIREMENTS}


def read(paths: Iterator[Path]) -> dict[Path, str]:
    return {path: path.read_text(encoding="utf-8") for path in sorted(paths)}


def cited() -> dict[str, set[str]]:
    """Return every id that is cited outside SPEC.md, with the files that cite it."""
    citations: dict[str, set[str]] = {}

    def note(identifiers: list[str], path: Path) -> None:
        for identifier in identifiers:
            citations.setdefault(identifier, set()).add(str(path.relative_to(ROOT)))

    for path, text in read((ROOT / "python" / "jobwire").rglob("*.py")).items():
        note(BRACKETED.findall(text) + CITATION.findall(text), path)
    for path, text in read((ROOT / "lua").glob("*.lua")).items():
        note(BRACKETED.findall(text) + CITATION.findall(text), path)
    for path, text in read((ROOT / "schema").glob("*.*")).items():
        note(BRACKETED.findall(text) + CITATION.findall(text), path)
    for path, text in read((ROOT / "fixtures").rglob("*.json")).items():
        note(list(covers(json.loads(text))), path)
    for path, text in read(TESTS.rglob("*.py")).items():
        if path != Path(__file__).resolve():  # this file cites ids of planted faults
            note(CITATION.findall(text), path)
    return citations


def covers(value: Any) -> Iterator[str]:
    """Yield the ids under every "covers" key of a fixture, at any depth."""
    if isinstance(value, dict):
        yield from value.get("covers", [])
        for inner in value.values():
            yield from covers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from covers(inner)


def named(tree: ast.Module) -> Iterator[str]:
    """Yield the texts by which a test module can name an id.

    Those are docstrings of tests, and literals anywhere in code (tables of cases, `match=`).
    A module's docstring says what a file is about, not what it proves; a comment proves nothing.
    """
    silent: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        is_test = getattr(node, "name", "").lower().startswith("test")
        if not is_test and node.body and isinstance(node.body[0], ast.Expr):
            silent.add(id(node.body[0].value))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in silent
        ):
            yield node.value


def named_by_tests() -> set[str]:
    """Return the ids that some test of an implementation names."""
    return {
        identifier
        for path, text in read(TESTS.rglob("test_*.py")).items()
        if path.name not in ABOUT_DOCUMENTS
        for literal in named(ast.parse(text))
        for identifier in CITATION.findall(literal)
    }


def without_test() -> list[str]:
    """Return the obligations that a black box can see and no test names."""
    known = named_by_tests()
    return [
        requirement.id
        for requirement in REQUIREMENTS
        if requirement.keywords[0] in ("MUST", "MUST NOT")
        and not requirement.test.startswith("none")
        and requirement.id not in known
    ]


def test_ids_are_unique_and_gapless() -> None:
    assert [name for name, count in Counter(r.id for r in REQUIREMENTS).items() if count > 1] == []
    for area in {identifier.partition("-")[0] for identifier in IDS}:
        numbers = sorted(int(i.partition("-")[2]) for i in IDS if i.startswith(f"{area}-"))
        assert numbers == list(range(1, len(numbers) + 1)), area


def test_areas_are_the_known_ones() -> None:
    assert {identifier.partition("-")[0] for identifier in IDS} == set(AREAS)


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=lambda r: r.id)
def test_block_is_well_formed(requirement: Requirement) -> None:
    assert requirement.body, "empty block"
    assert len(requirement.keywords) == 1, requirement.keywords
    assert requirement.keywords[0] in KEYWORDS
    assert KEYWORD_OUTSIDE.search(BOLD.sub("", requirement.body)) is None, "keyword not in bold"
    for claim in requirement.claims:
        role, _, profile = claim.partition("/")
        assert profile in PROFILES.get(role, set()), claim
    assert requirement.note.startswith("Why: "), "no reason follows"


def test_keywords_stand_in_blocks_only() -> None:
    stray = [(n, line) for n, line in OUTSIDE if KEYWORD_OUTSIDE.search(line)]
    assert stray == []


def test_references_inside_the_specification_exist() -> None:
    prose = "\n".join([*(line for _, line in OUTSIDE), *(r.body for r in REQUIREMENTS)])
    assert set(CITATION.findall(prose)) - IDS == set()


def test_cited_ids_exist() -> None:
    unknown = {i: sorted(files) for i, files in cited().items() if i not in IDS}
    assert unknown == {}


def test_every_obligation_is_named_by_a_test() -> None:
    assert without_test() == []


BLOCK = (
    "> **[KEY-1]** · client/core · since 1.0 · test: wire\n> A client **MUST** do it.\n\nWhy: so.\n"
)


@pytest.mark.parametrize(
    "head",
    [
        "> **[KEY-01]** · client/core · since 1.0 · test: wire",
        "> **[KEY-1]** · client · since 1.0 · test: wire",
        "> **[KEY-1]** · client/core · test: wire",
        "> **[KEY-1]** · client/core · since 1.0 · test: none",
        "> [KEY-1] · client/core · since 1.0 · test: wire",
    ],
)
def test_parser_refuses_a_malformed_head(head: str) -> None:
    assert parse(BLOCK)[0][0].keywords == ["MUST"]
    with pytest.raises(ValueError, match=r"^SPEC\.md:1: "):
        parse(head + "\n> A client **MUST** do it.\n")


def test_parser_sees_every_keyword_of_a_block() -> None:
    two = BLOCK.replace("do it", "do it and **SHOULD** do that")
    assert parse(two)[0][0].keywords == ["MUST", "SHOULD"]


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('def test_a():\n    """[KEY-1]"""', True),
        ('CASES = [("KEY-1", 1)]', True),
        ('"""About KEY-1."""', False),
        ("# KEY-1", False),
        ('def helper():\n    """Not a test of KEY-1."""', False),
    ],
)
def test_only_tests_name_ids(source: str, names: bool) -> None:
    found = [i for text in named(ast.parse(source)) for i in CITATION.findall(text)]
    assert found == (["KEY-1"] if names else [])


def test_parser_ignores_blocks_in_code_fences() -> None:
    assert parse(f"```text\n{BLOCK}```\n")[0] == []


if __name__ == "__main__":
    # `python python/tests/unit/test_spec.py` prints what is still without a test.
    raise SystemExit("\n".join(without_test()))
