"""The reader of SPEC.md and of the citations; `jobwire spec check` judges the text itself."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from jobwire_conformance.spec import document
from jobwire_conformance.spec.citations import cited, named
from jobwire_conformance.spec.document import CITATION, Malformed, keywords_of, read, read_checkout
from tests.rows import over

ROOT = Path(__file__).resolve().parents[3]
SPEC = read_checkout(ROOT)


def test_the_text_is_not_empty() -> None:
    """A parser that finds no requirement would also find no fault."""
    assert len(SPEC.requirements) >= 143
    assert {requirement.area for requirement in SPEC.requirements} == set(document.AREAS)
    assert {name.partition("/")[0] for name in SPEC.profiles} == {
        *("client", "worker", "scheduler", "inspector")
    }
    assert SPEC.version is not None
    assert [fence.language for fence in SPEC.fences if fence.language == "json"]


@pytest.mark.process
@pytest.mark.full
def test_citations_of_every_kind_are_found() -> None:
    present = {kind for kinds in cited(ROOT).values() for kind in kinds}
    assert present == {"code", "schema", "script", "fixture", "test", "prose"}


BLOCK = """\
> **[KEY-1]** · client/core · interop · all · since 1.0 · test: wire
> A client **MUST** do it.

Why: so.
"""


@over(
    "head",
    [
        "> **[KEY-01]** · client/core · interop · all · since 1.0 · test: wire",
        "> **[KEY-1]** · client · interop · all · since 1.0 · test: wire",
        "> **[KEY-1]** · client/core · interop · all · test: wire",
        "> **[KEY-1]** · client/core · since 1.0 · test: wire",
        "> **[KEY-1]** · client/core · basic · all · since 1.0 · test: wire",
        "> **[KEY-1]** · client/core · interop · 9.0 · since 1.0 · test: wire",
        "> **[KEY-1]** · client/core · interop · 8.1, 7.3 · since 1.0 · test: wire",
        "> **[KEY-1]** · client/core · interop · 6.4, 7.3, 8.1 · since 1.0 · test: wire",
        "> **[KEY-1]** · client/core · interop · all · since 1.0 · test: none",
        "> **[KEY-1]** · client/core · interop · all · since 1.0 · test: log",
        "> **[KEY-1]** · client/core · interop · all · since 1.0 · test: wire (so)",
        "> **[KEY-1]** · client/core · interop · all · since 1.0 · retired · test: wire",
        "> [KEY-1] · client/core · interop · all · since 1.0 · test: wire",
    ],
)
def test_reader_refuses_a_malformed_head(head: str) -> None:
    assert read(BLOCK).requirements[0].keyword == "MUST"
    with pytest.raises(Malformed, match=r"^SPEC\.md:1: "):
        read(head + "\n> A client **MUST** do it.\n")


@over("test", ["wire", "state", "outcome", "hook", "none (it is inside)"])
def test_reader_knows_what_a_check_looks_at(test: str) -> None:
    head = BLOCK.replace("test: wire", f"test: {test}")
    assert read(head).requirements[0].test == test


def test_reader_sees_every_keyword_of_a_block() -> None:
    two = BLOCK.replace("do it", "do it and **SHOULD** do that")
    assert keywords_of(read(two).requirements[0].text) == ["MUST", "SHOULD"]


@over(
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
    ids = [i for _, text in named(ast.parse(source)) for i in CITATION.findall(text)]
    assert ids == (["KEY-1"] if names else [])


@pytest.mark.process
def test_reader_ignores_blocks_in_code_fences() -> None:
    assert read(f"```text\n{BLOCK}```\n").requirements == ()
