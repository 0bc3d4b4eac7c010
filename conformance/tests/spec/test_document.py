"""Documents: they are read whole, and each lint finds a planted fault and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

from jobwire_conformance.spec import checks
from jobwire_conformance.spec.document import Profile, read
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
