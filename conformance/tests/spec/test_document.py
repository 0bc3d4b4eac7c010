"""Documents are read whole, and so are the citations of their requirements."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from jobwire_conformance.spec import checks, document
from jobwire_conformance.spec.citations import cited, named
from jobwire_conformance.spec.document import (
    CITATION,
    Malformed,
    Profile,
    keywords_of,
    read,
    read_checkout,
)
from tests.rows import over
from tests.spec.sample import SPEC, edited


def test_a_block_is_read_whole() -> None:
    first, second, third, _ = read(SPEC).requirements
    assert (first.id, first.claims, first.keyword) == ("KEY-1", ("client/core",), "MUST")
    assert first.text == "A client **MUST** push,\nat the head."
    assert (first.why, first.seen) == ("so KEY-2 can work.", "6 and 7.")
    assert SPEC.splitlines()[first.line - 1].startswith("> **[KEY-1]**")
    assert (first.level, first.generations) == ("interop", ("6.4", "7.3"))
    assert second.test == "none (no way to see it)"
    assert second.generations == ("6.4", "7.3", "8.1")
    assert (third.retired, third.is_obligation) == ("1.1", False)
    profiles = read(SPEC).profiles
    assert [*profiles] == ["client/core", "client/bulk", "worker/core", "worker/reliable"]
    assert profiles["client/core"] == Profile("client/core", (), "push, see `queue`")
    assert profiles["worker/reliable"].requires == ("worker/core+robust", "client/core")


def test_an_example_shows_the_block_before_it_or_those_that_its_introduction_names() -> None:
    """Examples of other sections, and those before the first block, show no requirement."""
    assert [fence.shows for fence in read(SPEC).fences] == [(), ("KEY-1",)]
    introduced = edited(("```redis-cli", "A push (KEY-2, REL-1):\n\n```redis-cli"))
    assert [fence.shows for fence in read(introduced).fences] == [(), ("KEY-2", "REL-1")]
    elsewhere = edited(("```redis-cli", "## 6 Others\n\n```redis-cli"))
    assert [fence.shows for fence in read(elsewhere).fences] == [(), ()]


def test_the_cases_of_the_suite_are_found(tmp_path: Path) -> None:
    assert checks.cases(tmp_path) == {}
    directory = tmp_path / "conformance" / "cases" / "client"
    directory.mkdir(parents=True)
    case = {
        "case": "push-head",
        "steps": [{"push": {}}, {"check": "REL-1"}],
        "crash": {"check": {"REL-2": "x"}},
    }
    (directory / "push.json").write_text(json.dumps([case]), "utf-8")
    found = checks.cases(tmp_path)
    assert (found["REL-1"], found["REL-2"]) == (["push-head"], ["push-head"])
    assert found["KEY-6"] == ["traffic"]


def test_the_hash_is_of_the_words() -> None:
    """Lines may be wrapped again; a changed word changes the hash."""

    def of(text: str) -> str:
        return read(text).requirements[0].sha256

    assert of(SPEC) == of(edited((",\n> at", ", at")))
    assert of(SPEC) == of(f"# Another title\n\n{SPEC}")
    assert of(SPEC) != of(edited(("at the head", "at the tail")))


# -- The reader of SPEC.md and of the citations; `jobwire spec check` judges the text itself

ROOT = Path(__file__).resolve().parents[3]
WHOLE = read_checkout(ROOT)


def test_the_text_is_not_empty() -> None:
    """A parser that finds no requirement would also find no fault."""
    assert len(WHOLE.requirements) >= 143
    assert {requirement.area for requirement in WHOLE.requirements} == set(document.AREAS)
    assert {name.partition("/")[0] for name in WHOLE.profiles} == {
        *("client", "worker", "scheduler", "inspector")
    }
    assert WHOLE.version is not None
    assert [fence.language for fence in WHOLE.fences if fence.language == "json"]


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
