"""The record of requirements, and the changes that a version may make."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from jobwire_conformance.spec import lints, published, record
from jobwire_conformance.spec.document import read
from tests.schemas import problems
from tests.spec.sample import RELEASED, REWORDED, SPEC, edited


def git_in(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", "-C", str(root), *who, *arguments], check=True)


def history(before: str, after: str) -> list[str]:
    """Return the faults of the step from one text to the other."""
    return [
        re.sub(r"^SPEC.md:\d+: ", "", str(fault))
        for fault in lints.of_history(read(after), [read(before)])
    ]


@pytest.mark.parametrize(
    ("edits", "problem"),
    [
        ([("[KEY-2]", "[KEY-3]")], "KEY-3: was KEY-2: ids are never renumbered"),
        (
            [("[KEY-1]", "[KEY-0]"), ("[KEY-2]", "[KEY-1]"), ("[KEY-0]", "[KEY-2]")],
            "has the text of KEY-2",
        ),
        ([("> **[PAY-1]**", "Was PAY-1"), ("> A payload **MAY**", "A payload may")], "was removed"),
    ],
)
@pytest.mark.parametrize("before", [SPEC, RELEASED])
def test_ids_are_permanent(edits: list[tuple[str, str]], problem: str, before: str) -> None:
    assert any(problem in fault for fault in history(before, edited(*edits, text=before)))


NEXT = ("Version **1.0**", "Version **1.1-draft.0**")


def test_a_released_text_changes_as_an_erratum_only() -> None:
    reworded = edited(REWORDED, NEXT, text=RELEASED)
    (fault,) = history(RELEASED, reworded)
    assert fault.startswith("KEY-1: differs from its released text: list it as an erratum of 1.1")
    assert history(RELEASED, reworded + "\n| 1.1 | KEY-1 | clearer |\n") == []
    # An erratum of another version or of another block excuses nothing.
    assert history(RELEASED, reworded + "\n| 1.0 | KEY-1 | clearer |\n") != []
    assert history(RELEASED, reworded + "\n| 1.1 | KEY-2 | clearer |\n") != []
    assert history(RELEASED, edited(NEXT, text=RELEASED)) == []


def test_a_retired_block_may_change() -> None:
    head = "> **[KEY-1]** · client/core · interop · 6.4, 7.3 · since 1.0"
    retired = edited(REWORDED, NEXT, (head, f"{head} · retired 1.1"), text=RELEASED)
    assert history(RELEASED, retired) == []


def test_drafts_change_freely() -> None:
    assert history(SPEC, edited(REWORDED)) == []


def test_published_versions_are_the_tags_of_the_checkout(tmp_path: Path) -> None:
    """A draft after a release does not hide the text of the release."""

    def git(*arguments: str) -> None:
        git_in(tmp_path, *arguments)

    assert published.documents(tmp_path) == []  # an unpacked archive
    git("init", "--quiet")
    assert published.documents(tmp_path) == []
    draft = edited(REWORDED, NEXT, text=RELEASED)
    for tag, text in (("spec-1.0", RELEASED), ("spec-1.1-draft.0", draft), ("0.2", SPEC)):
        (tmp_path / "SPEC.md").write_text(text, "utf-8")
        git("add", "SPEC.md")
        git("commit", "--quiet", "--message", tag)
        git("tag", "--annotate", "--message", tag, tag)
    texts = [each.requirements for each in published.documents(tmp_path)]
    assert texts == [read(RELEASED).requirements, read(draft).requirements]
    found = lints.of_history(read(draft), published.documents(tmp_path))
    assert [fault.lint for fault in found] == ["permanent"]


def test_a_check_goes_with_a_change_of_its_text(tmp_path: Path) -> None:
    """Also if the last commit removed it, and not if the text, or its level, changed as well."""
    case = tmp_path / "conformance" / "cases" / "keys.json"
    case.parent.mkdir(parents=True)
    changed = edited(("MUST** push", "MUST** add"))
    assert changed != SPEC

    def found(text: str = SPEC) -> list[str]:
        (tmp_path / "SPEC.md").write_text(text, "utf-8")
        return [str(fault) for fault in lints.of_checks(tmp_path, read(text))]

    def commit(checks: int, text: str = SPEC) -> None:
        case.write_text('{"check": "KEY-2"}\n{"check": "KEY-1", "len": 1}\n' * checks, "utf-8")
        (tmp_path / "SPEC.md").write_text(text, "utf-8")
        git_in(tmp_path, "add", ".")
        git_in(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "A change")

    git_in(tmp_path, "init", "--quiet")
    assert found() == []  # there is no commit yet
    commit(3)
    assert found() == []
    case.write_text('{"check": "KEY-2"}\n' * 3 + '{"check": "KEY-1"}\n' * 2, "utf-8")
    (fault,) = found()
    assert "KEY-1: 3 checks became 2" in fault
    assert fault.endswith("(check-dropped)")
    commit(2)
    assert len(found()) == 2  # the commit did it
    commit(2)
    assert found() == []
    commit(1, changed)
    assert [fault.split()[1] for fault in found(changed)] == ["KEY-2:"]


def test_the_record_is_json_and_complete() -> None:
    checks = {"KEY-1": ["push-head"]}
    made = json.loads(record.render(record.build(read(SPEC), checks)))
    assert (made["format"], made["version"]) == (2, "1.0-draft.1")
    assert made["profiles"][1] == {
        "profile": "client/bulk",
        "requires": ["client/core"],
        "purpose": "push many",
    }
    assert [entry["id"] for entry in made["requirements"]] == ["KEY-1", "KEY-2", "PAY-1", "REL-1"]
    assert made["requirements"][0] == {
        "id": "KEY-1",
        "section": "5",
        "claims": ["client/core"],
        "level": "interop",
        "generations": ["6.4", "7.3"],
        "keyword": "MUST",
        "since": "1.0",
        "retired": None,
        "test": {"kind": "wire", "reason": None},
        "text": "A client **MUST** push,\nat the head.",
        "why": "so KEY-2 can work.",
        "seen_in": "6 and 7.",
        "examples": [{"language": "redis-cli", "text": "PING\n# => PONG"}],
        "sha256": read(SPEC).requirements[0].sha256,
        "deviations": [],
        "checks": ["push-head"],
    }
    assert made["requirements"][1]["test"] == {"kind": "none", "reason": "no way to see it"}
    assert made["requirements"][3]["deviations"] == ["6.4.1", "7.3.2"]
    assert made["sections"] == [
        {"number": "5", "title": "Keys", "file": "SPEC.md", "anchor": "5-keys"},
        {
            "number": "A",
            "title": "where Sidekiq differs",
            "file": "SPEC.md",
            "anchor": "appendix-a-where-sidekiq-differs",
        },
    ]
    assert problems("requirements.schema", None, made) == []
    assert problems("requirements.schema", None, {**made, "format": 1}) != []
