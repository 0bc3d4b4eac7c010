"""A checkout: its citations, its gaps, and the files that are made from the specification."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from jobwire_conformance.spec import lints, mistakes, registry, scripts, trace
from jobwire_conformance.spec.citations import cited
from jobwire_conformance.spec.document import Document, read
from tests.spec.sample import SPEC, edited


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a small checkout without faults."""
    for name, text in {
        "SPEC.md": SPEC,
        "python/jobwire/core.py": 'def push():\n    """[KEY-1]"""\n\n\nx = 1  # [KEY-2]\n',
        "python/tests/test_core.py": "class TestPush:\n    def test_head(self):\n        'KEY-1'\n",
        "python/tests/servers.py": "# UTF-8, KEY-2\n",
        "schema/payload.json": '{"$comment": "[KEY-1]"}',
        "lua/fetch.lua": "-- fetch.lua: [KEY-2]\n",
        "fixtures/index.json": '[{"file": "a.json", "covers": ["KEY-1"]}]',
        "fixtures/a.json": '[{"name": "x", "breaks": ["KEY-2"]}]',
        "docs/guide.md": "See KEY-1.\n",
        "README.md": "See KEY-2.\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def document_of(root: Path) -> Document:
    return read((root / "SPEC.md").read_text("utf-8"))


def test_citations_know_where_they_stand(checkout: Path) -> None:
    assert cited(checkout) == {
        "KEY-1": {
            "code": ["python/jobwire/core.py::push"],
            "schema": ["schema/payload.json"],
            "fixture": ["fixtures/a.json"],
            "test": ["python/tests/test_core.py::TestPush::test_head"],
            "prose": ["docs/guide.md"],
        },
        "KEY-2": {
            "code": ["python/jobwire/core.py"],
            "script": ["lua/fetch.lua"],
            "fixture": ["fixtures/a.json"],
            "prose": ["README.md", "python/tests/servers.py"],
        },
    }


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("python/jobwire/core.py", "# [KEY-9]"),
        ("python/jobwire/core.py", "# [POST-1]"),
        ("lua/fetch.lua", "-- [KEY-9]"),
        ("schema/payload.json", '{"$comment": "[KEY-9]"}'),
        ("fixtures/a.json", '[{"covers": ["KEY-9"]}]'),
        ("python/tests/test_core.py", 'x = "KEY-9"'),
        ("python/tests/servers.py", "# KEY-9"),
        ("docs/guide.md", "KEY-9"),
        ("docs/deep/down.md", "KEY-9"),
        ("examples/a/README.md", "KEY-9"),
        ("README.md", "KEY-9"),
    ],
)
def test_an_unknown_id_is_found_wherever_it_stands(checkout: Path, name: str, text: str) -> None:
    document = document_of(checkout)
    assert list(lints.of_citations(document, cited(checkout))) == []
    (checkout / name).parent.mkdir(parents=True, exist_ok=True)
    (checkout / name).write_text(text, "utf-8")
    (fault,) = lints.of_citations(document, cited(checkout))
    assert (fault.place.partition("::")[0], fault.lint) == (name, "unknown-id")


def test_code_and_tests_do_not_stand_on_retired_ids(checkout: Path) -> None:
    (checkout / "lua/fetch.lua").write_text("-- [PAY-1]", "utf-8")
    (checkout / "docs/guide.md").write_text("PAY-1 was once.", "utf-8")
    citing = lints.of_citations(document_of(checkout), cited(checkout))
    assert [(fault.place, fault.lint) for fault in citing] == [("lua/fetch.lua", "retired-id")]


def make_records(root: Path) -> None:
    document = document_of(root)
    rendered = registry.render(registry.build(document))
    (root / "schema/registry.json").write_text(rendered, "utf-8")
    (root / "lua/README.md").write_text(scripts.page(root, document), "utf-8")


@pytest.mark.parametrize(
    ("edit", "stale"),
    [
        (lambda root: None, []),
        (lambda root: (root / "schema/registry.json").unlink(), ["schema/registry.json"]),
        (lambda root: (root / "SPEC.md").write_text("\n" + SPEC, "utf-8"), []),
        (
            lambda root: (root / "lua/fetch.lua").write_text("-- [KEY-1]", "utf-8"),
            ["lua/README.md"],
        ),
        (
            lambda root: (root / "lua/fetch.lua").write_text("-- fetch.lua: [KEY-2]\n\n", "utf-8"),
            ["lua/README.md"],
        ),
        (lambda root: (root / "lua/README.md").unlink(), ["lua/README.md"]),
    ],
)
def test_generated_files_that_are_out_of_date_are_found(
    checkout: Path, edit: Callable[[Path], object], stale: list[str]
) -> None:
    make_records(checkout)
    edit(checkout)
    found = list(lints.of_records(checkout, document_of(checkout)))
    assert [fault.place for fault in found] == stale
    assert all("to repair: make generate" in fault.problem for fault in found)


TRAPS = """\
| # | Mistake | Result | Requirements |
| --- | --- | --- | --- |
| 1 | Seldom. | Little. | KEY-1 |
| **2** | `a \\| b` fails. | Much. | KEY-1, KEY-2; note: with a note that stays behind |
"""
MISTAKES = "| Mistake | Result | See |\n| --- | --- | --- |\n"


def test_the_frequent_traps_are_copied_into_the_document(checkout: Path) -> None:
    """This is not a requirement: SPEC.md and docs/reference/traps.md must agree."""
    spec = checkout / "SPEC.md"
    spec.write_text(f"{SPEC}\n{MISTAKES}| old | old | KEY-1 |\n\nAfter it.\n", "utf-8")
    make_records(checkout)
    page = checkout / mistakes.PAGE
    page.parent.mkdir(parents=True)
    page.write_text(TRAPS, "utf-8")
    found = list(lints.of_records(checkout, document_of(checkout)))
    assert ("SPEC.md", "out-of-date") in [(fault.place, fault.lint) for fault in found]
    spec.write_text(mistakes.updated(checkout), "utf-8")
    assert spec.read_text("utf-8").endswith(
        f"\n{MISTAKES}| `a \\| b` fails. | Much. | KEY-1, KEY-2 |\n\nAfter it.\n"
    )
    assert not mistakes.outdated(checkout)


def test_the_page_of_scripts_has_what_a_server_calls_them(checkout: Path) -> None:
    """LUA-3: the SHA-1 of the exact bytes, with contract, condition and effect of a crash."""
    (checkout / "lua/fetch.lua").write_text("-- fetch.lua: take a job. [KEY-2]\n", "utf-8")
    page = scripts.page(checkout, document_of(checkout))
    sha = "cadd0270f4d30def9fe98725d42cd52b2e488750"
    assert f"| [fetch](fetch.lua) | `{sha}` | take a job |\n" in page
    assert "| fetch | queue | a job | O(1) | there is one |\n" in page
    assert page.endswith("A crash of the caller leaves\nnothing.\n")


@pytest.mark.parametrize("row", ["| `fetch` | queue |", "| `fetch` | there is one |"])
def test_a_script_that_the_document_leaves_out_is_found(checkout: Path, row: str) -> None:
    make_records(checkout)
    (checkout / "SPEC.md").write_text(edited((row, row.replace("fetch", "other"))), "utf-8")
    found = list(lints.of_records(checkout, document_of(checkout)))
    assert [(fault.place, fault.lint) for fault in found] == [("lua/fetch.lua", "script")]


def test_the_page_names_the_gaps(checkout: Path) -> None:
    document, citations = document_of(checkout), cited(checkout)
    page = trace.page(document, citations, {"KEY-1": ["push-head", "traffic"]})
    assert "- Obligations without a test: none\n" in page
    row = "| KEY-1 | MUST | wire |  | core | payload |  | a | test_core | push-head, traffic |\n"
    assert row in page
    assert "| PAY-1 | retired | state |  |  |  |  |  |  |  |\n" in page
    del citations["KEY-1"]
    page = trace.page(document, citations)
    assert "- Obligations without a test: KEY-1\n" in page
    assert "- Obligations without code: KEY-1\n" in page


def test_what_nothing_cites_is_a_gap(checkout: Path) -> None:
    """A retired requirement needs no citation; one with a case, or invisible, needs no test."""
    document = document_of(checkout)
    kinds = {"code": ["a.py"], "test": ["test_a.py"]}
    whole = {requirement.id: dict(kinds) for requirement in document.requirements}
    assert list(lints.of_gaps(document, whole)) == []
    first = document.requirements[0]
    for kind in kinds:
        part = {**whole, first.id: {k: v for k, v in kinds.items() if k != kind}}
        (fault,) = lints.of_gaps(document, part)
        assert (fault.place, fault.lint) == (f"SPEC.md:{first.line}", f"no-{kind}")
        assert fault.problem.startswith(f"{first.id}: no {kind} cites it")
        left = [*lints.of_gaps(document, part, (), {first.id: ["a-case"]})]
        assert left == ([] if kind == "test" else [fault])
