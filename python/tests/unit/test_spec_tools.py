"""The specification's tools: every lint finds a planted fault, and nothing in a sound document."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobwire.spec import (
    checks,
    fixture_files,
    lints,
    oracle,
    record,
    registry,
    scripts,
    trace,
    traps,
    verdicts,
)
from jobwire.spec.citations import cited
from jobwire.spec.document import Document, Profile, read
from jobwire_conformance.judge import objects, payloads
from jobwire_conformance.judge.payloads import View
from tests.schemas import problems

ROOT = Path(__file__).resolve().parents[3]

PAYLOAD = (
    '{"retry":true,"queue":"default","args":[1],"class":"A","jid":"9f2c1b7a4d3e5f60718293a4",'
    '"created_at":1786960000123,"enqueued_at":1786960000124}'
)
SPEC = f"""# A protocol

Version **1.0-draft.1**. A sample.

| Profile | Requires | Purpose |
| --- | --- | --- |
| client/core | | push, see `queue` |
| client/bulk | client/core | push many |
| worker/core | | run |
| worker/reliable | worker/core+robust, client/core | lose nothing |

```json
{PAYLOAD}
```

## 5 Keys

> **[KEY-1]** · client/core · interop · 6.4, 7.3 · since 1.0 · test: wire
> A client **MUST** push,
> at the head.

Why: so KEY-2 can work.

Seen in: 6 and 7.

```redis-cli
PING
# => PONG
```

> **[KEY-2]** · worker/core, client/bulk · interop · all · since 1.0 · test: none (no way to see it)
> A worker **SHOULD** fetch.

Why: it is a worker.

> **[PAY-1]** · client/core · interop · all · since 1.0 · retired 1.1 · test: state
> A payload **MAY** be odd.

Why: history.

> **[REL-1]** · worker/reliable · robust · all · since 1.0 · test: state
> A fetch **MAY** be one step.

Why: nothing is lost.

Seen in: 8.

## Appendix A: where Sidekiq differs

| Id | Does not hold in |
| --- | --- |
| REL-1 | 6.4.1, 7.3.2 |

## Appendix B

| Script | KEYS | Returns | Complexity |
| --- | --- | --- | --- |
| `fetch` | queue | a job | O(1) |

A crash of the caller leaves
nothing.

| Script | Acts if | Effect |
| --- | --- | --- |
| `fetch` | there is one | takes it |
"""
RELEASED = SPEC.replace("1.0-draft.1", "1.0")


def faults(text: str) -> list[str]:
    return [fault.lint for fault in lints.of_document(read(text))]


def edited(*edits: tuple[str, str], text: str = SPEC) -> str:
    for old, new in edits:
        assert old in text
        text = text.replace(old, new)
    return text


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
    case = {"steps": [{"push": {}}, {"check": "REL-1"}], "crash": {"check": {"REL-2": "x"}}}
    (directory / "push-head.json").write_text(json.dumps(case), "utf-8")
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


def test_nothing_is_wrong_with_a_good_document() -> None:
    assert faults(SPEC) == []


@pytest.mark.parametrize(
    ("lint", "old", "new"),
    [
        ("keyword", "**MUST** push", "**MUST** push and **SHOULD** look"),
        ("keyword", "**MUST** push", "pushes"),
        ("keyword", "**MUST** push", "**OUGHT** to push"),
        ("keyword", "**MUST** push", "**MUST** push and SHOULD look"),
        ("keyword", "> A worker **SHOULD** fetch.\n", ""),
        ("stray-keyword", "A sample.", "Clients MUST obey."),
        ("stray-keyword", "it is a worker.", "it is REQUIRED."),
        ("why", "Why: so KEY-2", "So KEY-2"),
        ("why", "Why: it is a worker.", ""),
        ("duplicate-id", "[KEY-2]", "[KEY-1]"),
        ("gap", "[KEY-2]", "[KEY-3]"),
        ("area", "[PAY-1]", "[POST-1]"),
        ("claim", "worker/core, client/bulk", "worker/core, client/fast"),
        ("claim", "worker/core, client/bulk", "worker/core, client/queue"),
        ("profile", "worker/core+robust,", "worker/care+robust,"),
        ("generations", "Seen in: 6 and 7.\n", ""),
        ("unknown-id", "so KEY-2 can", "so KEY-9 can"),
        ("version", "Version **1.0-draft.1**", "Version one"),
        ("example", "```json", "```"),
        ("example", '"args":[1]', '"args":[1,]'),
        ("example", '"args":[1]', '"args":"1"'),
        ("example", '"args":[1]', '"args": [1]'),
        ("example", '"created_at":1786960000123', '"created_at":1786960000'),
    ],
)
def test_a_planted_fault_is_found(lint: str, old: str, new: str) -> None:
    assert lint in faults(edited((old, new)))


def test_a_document_without_blocks_is_one_fault_not_none() -> None:
    assert "empty" in faults("Version **1.0**\n")


def history(before: str, after: str) -> list[str]:
    """Return the faults of the step from one text to the other."""
    return [
        re.sub(r"^SPEC.md:\d+: ", "", str(fault))
        for fault in lints.of_history(read(after), record.build(read(before), None))
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


REWORDED = ("at the head", "at the left end")
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


def test_drafts_change_freely_and_say_so() -> None:
    before = record.build(read(SPEC), None)
    after = read(edited(REWORDED))
    assert history(SPEC, edited(REWORDED)) == []
    assert record.changed(after, before) == {"new": [], "reworded": ["KEY-1"], "gone": []}


def test_released_hashes_survive_the_drafts_after() -> None:
    """Otherwise a second edit in a draft would hide the first."""
    released = record.build(read(RELEASED), None)
    build = record.build(read(edited(REWORDED, NEXT, text=RELEASED)), released)
    assert build["requirements"][0]["released"] == released["requirements"][0]["sha256"]
    assert build["requirements"][0]["sha256"] != released["requirements"][0]["sha256"]
    again = read(edited(("at the head", "anywhere"), NEXT, text=RELEASED))
    assert [fault.lint for fault in lints.of_history(again, build)] == ["permanent"]


def test_the_record_is_json_and_complete() -> None:
    checks = {"KEY-1": ["push-head"]}
    made = json.loads(record.render(record.build(read(SPEC), None, checks)))
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
        "released": None,
        "deviations": [],
        "checks": ["push-head"],
    }
    assert made["requirements"][1]["test"] == {"kind": "none", "reason": "no way to see it"}
    assert made["requirements"][3]["deviations"] == ["6.4.1", "7.3.2"]
    assert made["sections"] == [
        {"number": "5", "title": "Keys", "anchor": "5-keys"},
        {
            "number": "A",
            "title": "where Sidekiq differs",
            "anchor": "appendix-a-where-sidekiq-differs",
        },
    ]
    assert problems("requirements.schema", None, made) == []
    assert problems("requirements.schema", None, {**made, "format": 1}) != []


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


INTEROP = "python/tests/interop/test_real.py"
RECORDED = "fixtures/sidekiq/{}/states.json"
EVERY = [RECORDED.format(version) for version in oracle.VERSIONS]


def oracle_faults(text: str, **cited: dict[str, list[str]]) -> list[str]:
    """Return id and lint of each fault; `cited` maps ids with an underscore to citations."""
    citations = {name.replace("_", "-"): kinds for name, kinds in cited.items()}
    return [
        f"{fault.problem.partition(':')[0]} {fault.lint}"
        for fault in lints.of_oracle(read(text), citations)
    ]


def test_what_appendix_a_says_is_read() -> None:
    assert oracle.differing(read(SPEC)) == {"REL-1": "6.4.1, 7.3.2"}


def test_what_was_asked_of_sidekiq_is_told() -> None:
    document = read(SPEC)
    first, second, _, own = document.requirements
    assert oracle.evidence(first, {"test": [INTEROP]}, document) == "test"
    assert oracle.evidence(first, {"fixture": EVERY}, document) == "recording"
    assert oracle.evidence(first, {"fixture": EVERY[1:]}, document) == "recording of 7.3.2, 8.1.7"
    assert oracle.evidence(first, {"test": ["python/tests/unit/test_x.py"]}, document) == ""
    assert oracle.evidence(second, {}, document) == "not visible"
    assert oracle.evidence(own, {}, document) == "differs"
    assert oracle.evidence(own, {}, read(edited(("| REL-1 | 6", "| REL-9 | 6")))) == "ours"


ASKED = {"KEY_1": {"test": [INTEROP]}}
SEEN = ("test: none (no way to see it)", "test: state")
UNSEEN = ("Seen in: 8.\n", "")


@pytest.mark.parametrize(
    ("edits", "cited", "found"),
    [
        ([], ASKED, []),
        # No evidence.
        ([], {}, ["KEY-1 oracle"]),
        ([SEEN], {**ASKED, "KEY_2": {"test": ["python/tests/unit/x.py"]}}, ["KEY-2 oracle"]),
        ([SEEN], {**ASKED, "KEY_2": {"test": [INTEROP]}}, []),
        ([SEEN], {**ASKED, "KEY_2": {"fixture": EVERY}}, []),
        # The evidence denies the level.
        ([("| REL-1 | 6", "| KEY-1 | 6")], ASKED, ["KEY-1 oracle"]),
        # Generations differ, but the block does not describe it.
        ([UNSEEN], ASKED, ["REL-1 seen-in"]),
        ([UNSEEN, ("| REL-1 | 6", "| REL-9 | 6")], ASKED, []),
        ([SEEN], {**ASKED, "KEY_2": {"fixture": EVERY[:1]}}, ["KEY-2 seen-in"]),
        ([("it is a worker", "up to 7.2 it was not")], ASKED, ["KEY-2 seen-in"]),
        ([("it is a worker", "its generations fetch")], ASKED, ["KEY-2 seen-in"]),
        ([("**SHOULD** fetch", "**SHOULD** fetch as Sidekiq 8 does")], ASKED, ["KEY-2 seen-in"]),
        ([("it is a worker", "it waits 7.5 s")], ASKED, []),
        ([("Seen in: 6 and 7.", "Seen in: some of them.")], ASKED, ["KEY-1 seen-in"]),
    ],
)
def test_what_sidekiq_was_not_asked_is_found(
    edits: list[tuple[str, str]], cited: dict[str, Any], found: list[str]
) -> None:
    assert oracle_faults(edited(*edits), **cited) == found


def make_records(root: Path) -> dict[str, Any]:
    document = document_of(root)
    made = record.build(document, None)
    (root / "schema/requirements.json").write_text(record.render(made), "utf-8")
    rendered = registry.render(registry.build(document))
    (root / "schema/registry.json").write_text(rendered, "utf-8")
    (root / "lua/README.md").write_text(scripts.page(root, document), "utf-8")
    return made


@pytest.mark.parametrize(
    ("edit", "stale"),
    [
        (lambda root: None, []),
        (
            lambda root: (root / "SPEC.md").write_text(edited(REWORDED), "utf-8"),
            ["schema/requirements.json"],
        ),
        (
            lambda root: (root / "SPEC.md").write_text(edited(("PING", "ECHO x")), "utf-8"),
            ["schema/requirements.json"],
        ),
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
    made = make_records(checkout)
    edit(checkout)
    found = list(lints.of_records(checkout, document_of(checkout), made))
    assert [fault.place for fault in found] == stale
    assert all("to repair: jobwire spec " in fault.problem for fault in found)


TRAPS = """\
| # | Mistake | Result | Requirements |
| --- | --- | --- | --- |
| 1 | Seldom. | Little. | KEY-1 |
| **2** | `a \\| b` fails. | Much. | KEY-1, KEY-2; note: with a note that stays behind |
"""
MISTAKES = "| Mistake | What happens | See |\n| --- | --- | --- |\n"


def test_the_frequent_traps_are_copied_into_the_document(checkout: Path) -> None:
    """This is not a requirement: SPEC.md and docs/reference/traps.md must agree."""
    spec = checkout / "SPEC.md"
    spec.write_text(f"{SPEC}\n{MISTAKES}| old | old | KEY-1 |\n\nAfter it.\n", "utf-8")
    made = make_records(checkout)
    page = checkout / traps.PAGE
    page.parent.mkdir(parents=True)
    page.write_text(TRAPS, "utf-8")
    found = list(lints.of_records(checkout, document_of(checkout), made))
    assert ("SPEC.md", "out-of-date") in [(fault.place, fault.lint) for fault in found]
    spec.write_text(traps.updated(checkout), "utf-8")
    assert spec.read_text("utf-8").endswith(
        f"\n{MISTAKES}| `a \\| b` fails. | Much. | KEY-1, KEY-2 |\n\nAfter it.\n"
    )
    assert not traps.outdated(checkout)


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
    made = make_records(checkout)
    (checkout / "SPEC.md").write_text(edited((row, row.replace("fetch", "other"))), "utf-8")
    found = list(lints.of_records(checkout, document_of(checkout), made))
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


def broken(text: str | bytes, view: payloads.View) -> dict[str, str]:
    """Map the broken rules to the paths of the faults."""
    judged = verdicts.judge(text.encode() if isinstance(text, str) else text, view)
    return {verdict.rule: verdict.path for verdict in judged if verdict.broken}


READER, SEVEN, EIGHT = View(), View("writer", None, "7.3"), View("writer", None, "8.1")
IN_SECONDS = edited(("0123,", ".123,"), ("124}", ".0}"), text=PAYLOAD)


def test_a_good_payload_breaks_nothing() -> None:
    assert broken(PAYLOAD, EIGHT) == broken(PAYLOAD, READER) == {}
    assert broken(IN_SECONDS, SEVEN) == broken(IN_SECONDS, READER) == {}
    assert {v.rule for v in verdicts.judge(PAYLOAD.encode(), EIGHT)} >= {
        *("PAY-1", "PAY-2", "PAY-3", "PAY-4", "PAY-6", "PAY-8", "PAY-9", "PAY-12", "GEN-2"),
    }
    assert "GEN-1" in broken(PAYLOAD, SEVEN)
    assert "GEN-2" in broken(IN_SECONDS, EIGHT)


@pytest.mark.parametrize(
    ("old", "new", "rule", "path"),
    [
        ("}", "", "PAY-1", "$"),
        ("[1]", "[NaN]", "PAY-4", "$"),
        ("[1]", "[-Infinity]", "PAY-4", "$"),
        ("[1]", "[ 1]", "PAY-2", "$"),
        ("[1]", r'["\/"]', "PAY-21", "$"),
        ("[1]", r'["\\ \u00e9"]', "PAY-21", "$"),
        *(("[1]", rf'["\u{code}"]', "PAY-20", "$") for code in ("000a", "0008", "0022", "005c")),
        *(("[1]", rf'["\u{code}"]', "PAY-20", "$") for code in ("001F", "000B")),
        *(("[1]", rf'["\u{code}"]', "PAY-21", "$") for code in ("007f", "2028", "d83d\\ude00")),
        *(("[1]", rf'["{half}"]', "PAY-22", "$") for half in (r"\ud800", r"\udc00\ud800")),
        ("[1]", "[1e400]", "PAY-6", "$"),
        ("[1]", "[-1e400]", "PAY-6", "$"),
        ('"enqueued_at"', '"retry_count":3,"failed_at"', "RETRY-17", "$"),
        ("[1]", "[1.10]", "PAY-6", "$"),
        ("[1]", "[0.1000000000000000055]", "PAY-6", "$"),
        ("[1]", "[-0]", "PAY-26", "$"),
        ("[1]", '[{"a":1,"b":{"c":1,"c":2}}]', "PAY-8", "$.args[0].b"),
        ("[1]", '[{"a b":{"c":1,"c":2}}]', "PAY-8", '$.args[0]["a b"]'),
        ("[1]", "[" * 100 + "]" * 100, "PAY-3", "$"),
        ("[1]", "null", "PAY-30", "$.args"),
        ('"9f2c1b7a4d3e5f60718293a4"', '""', "PAY-9", "$.jid"),
        ("1786960000123", "1786960000123.0", "GEN-2", "$.created_at"),
        ("1786960000123", "1786960000", "GEN-2", "$.created_at"),
        ('"retry":true', '"retry":-1', "PUSH-4", "$.retry"),
        ('"retry":true,', "", "PUSH-6", "$"),
        ("[1]", r'["\\/ \" \b\f\n\r\t \u0000\u0007\u000b\u000e\u001f é 😀 \\ud800"]', None, ""),
        ("[1]", "[1.0,-0.0,1e+20,1.0e+20,123456789012345678901234567890]", None, ""),
    ],
)
def test_each_rule_finds_its_fault(old: str, new: str, rule: str | None, path: str) -> None:
    """The path leads to the value: an object with a doubled name, or the whole text."""
    found = broken(edited((old, new), text=PAYLOAD), EIGHT)
    assert found.get(rule) == path if rule else found == {}


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        (b"", "PAY-1"),
        (b"[]", "PAY-1"),
        (b"\xef\xbb\xbf" + PAYLOAD.encode(), "PAY-1"),
        (PAYLOAD.encode().replace(b"[1]", b'["\xff"]'), "PAY-1"),
        (b'{"class":"A","args":' + b"[" * 100_000, "PAY-3"),
        (b'{"class":"A","args":{}}', "EXEC-7"),
        (b'{"class":7}', "EXEC-2"),
    ],
)
def test_what_no_reader_accepts(text: bytes, rule: str) -> None:
    assert rule in broken(text, READER)
    for odd in (
        '{"class":"A"}',
        f" {PAYLOAD} ",
        IN_SECONDS,
        PAYLOAD.replace("[1]", '[{"a":1,"a":2}]'),
    ):
        assert broken(odd, READER) == {}


@pytest.mark.parametrize("value", ["1e400", r'"\ud800"'])
def test_what_jobwire_cannot_hold_is_a_note(value: str) -> None:
    judged = verdicts.judge(f'{{"class":"A","args":[{value}]}}'.encode(), READER)
    found = [verdict for verdict in judged if verdict.problem]
    assert {(verdict.rule, verdict.kind) for verdict in found} == {("", "note")}
    assert "a limit of that parser, not a rule of the protocol" in found[-1].problem
    assert "not every parser can read it" in found[0].problem


def test_a_jid_of_the_caller_is_a_note_for_a_writer() -> None:
    """PAY-9, PUSH-19: a client writes it unchanged, and makes other ones itself."""
    given = PAYLOAD.replace("9f2c1b7a4d3e5f60718293a4", "6f9619ff-8b86-d011-b42d-00cf4fc964ff")
    judged = verdicts.judge(given.encode(), EIGHT)
    assert [(v.rule, v.kind, v.path) for v in judged if v.problem] == [("PAY-9", "note", "$.jid")]


def test_an_odd_time_is_a_note_for_a_reader() -> None:
    """INSP-3, GEN-3: a time as text does not make a job unreadable."""
    odd = PAYLOAD.replace("1786960000123", '"2026-11-20"')
    judged = verdicts.judge(odd.encode(), READER)
    assert [(v.rule, v.kind, v.path) for v in judged if v.problem] == [
        ("GEN-3", "note", "$.created_at")
    ]
    assert broken(odd, EIGHT) == {"GEN-2": "$.created_at"}


@pytest.mark.parametrize(
    ("string", "is_half"),
    [
        (r"\ud83d\ude00\uD83D\uDE00", False),
        (r"\\ud800", False),
        (r"\ude00\ud83d", True),
        (r"\ud83dabc", True),
        (r"\ud83dx\n", True),
        (r"\ud83d\n\ude00", True),
        (r"\ud83d\ud83d\ude00", True),
    ],
)
def test_a_half_of_a_surrogate_pair_is_noted(string: str, is_half: bool) -> None:
    """PAY-1: a reader accepts it, and some parsers do not."""
    text = f'{{"class":"A","args":["{string}"]}}'.encode()
    assert bool(payloads.notes(text)) == is_half
    assert broken(text, READER) == {}


@pytest.mark.parametrize("place", [None, *payloads.PLACES])
@pytest.mark.parametrize(
    ("changes", "places"),
    [
        ({"queue": None}, {"queue", "dead", None}),  # SCHED-9
        ({"queue": 7}, {"queue", "dead", None}),
        ({"queue": ""}, {"queue", "dead", None}),
        ({"retry_queue": 5}, {*payloads.PLACES, None}),
        ({"retry_for": 90.5}, {*payloads.PLACES, None}),
        ({"args": {}}, {"dead"}),  # EXEC-7
        ({"class": None}, {"dead"}),  # EXEC-2
    ],
)
def test_a_reader_accepts_by_place(
    changes: dict[str, Any], places: set[str | None], place: payloads.Place | None
) -> None:
    """SCHED-9, RETRY-7, EXEC-2, EXEC-7: a worker knows the queue, a scheduler needs its name."""
    text = json.dumps({**json.loads(PAYLOAD), **changes})
    assert (broken(text, View("reader", place)) == {}) == (place in places)


def test_unreadable_bytes_may_be_in_dead() -> None:
    """KEY-3, EXEC-3, EXEC-4: and JSON that is not an object may not."""
    for role in payloads.ROLES:
        assert broken(b"\xff{", View(role, "dead")) == {}
        assert broken("[1]", View(role, "dead")) == {"EXEC-4": "$"}
        assert broken("[1]", View(role, "queue")) == {"PAY-1": "$"}


def test_a_rule_binds_only_its_generations() -> None:
    """PAY-8: 6.4 repeats `cattr`. RETRY-8: 6.4 breaks base64 into lines."""
    twice = edited(("}", ',"cattr":1,"cattr":2}'), text=IN_SECONDS)
    for generation, rules in {"6.4": set(), "7.3": {"PAY-8"}}.items():
        assert {*broken(twice, View("writer", None, generation))} == rules


def test_every_rule_exists() -> None:
    known = read((ROOT / "SPEC.md").read_text("utf-8")).by_id
    generations = ("6.4", "7.3", "8.1")
    for view in itertools.starmap(
        View, itertools.product(payloads.ROLES, (None, *payloads.PLACES), generations)
    ):
        assert set(payloads.rules(view)) <= set(known)
        for name, kind in objects.OBJECTS.items():
            if view.generation in kind.generations:
                assert set(objects.rules(name, view)) <= set(known)


@pytest.mark.parametrize(
    "path", sorted((ROOT / "fixtures").rglob("*.json")), ids=lambda p: str(p.relative_to(ROOT))
)
def test_fixture_files_are_what_they_say(path: Path) -> None:
    entries = fixture_files.entries(path.read_bytes())
    assert entries
    assert list(fixture_files.shape_problems(entries)) == []
    judged = [fixture_files.judge_entry(entry, None) for entry in entries]
    assert [one for one in judged if one is not None and one.problem] == []
    assert path.name != "payloads.json" or None not in judged


def test_an_entry_that_is_not_what_it_says() -> None:
    def problem(**entry: Any) -> str:
        judged = fixture_files.judge_entry({"name": "x", **entry}, None)
        assert judged is not None
        return judged.problem

    assert problem(payload=PAYLOAD) == ""
    assert problem(payload=PAYLOAD, breaks=["PAY-8"]) == "says to break PAY-8, and does not"
    assert problem(payload="{", breaks=["PAY-1"]) == ""
    run = {"breaks": ["PAY-1"], "expect": {"outcome": "run"}}
    assert problem(payload="{", **run) == "has to run in a reader, and breaks PAY-1"
    assert problem(payload="{") == "has to run in a reader, and breaks PAY-1"
    assert problem(payload_base64="ew==", expect={"outcome": "bury"}) == ""


def test_what_nothing_cites_is_a_gap(checkout: Path) -> None:
    """A retired requirement needs no citation, and an invisible one needs no test."""
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
