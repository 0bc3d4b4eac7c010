"""Annexes and the registry: read from their files, checked, and part of the data."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from jobwire_conformance import data
from jobwire_conformance.spec import annexes, history, lints, record, registry, sheet
from jobwire_conformance.spec.document import Malformed, read, read_checkout
from tests.schemas import problems
from tests.workers import jobwire
from tools import version

ROOT = Path(__file__).resolve().parents[3]
SPEC = read_checkout(ROOT)
TEMPLATE = (ROOT / "spec" / "template.md").read_text("utf-8")
STABLE = TEMPLATE.replace("**experimental**", "**stable**")
TWO = "| one | 1.0 | [report](a) |\n| two | 2.0 | [report](b) |\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout with the pages of the directory, which are not annexes."""
    directory = tmp_path / annexes.DIRECTORY
    directory.mkdir(parents=True)
    (directory / "README.md").write_text("# Annexes\n", "utf-8")
    (directory / "template.md").write_text(TEMPLATE, "utf-8")
    return tmp_path


def plant(root: Path, text: str, name: str = "cron") -> list[str]:
    (root / annexes.DIRECTORY / f"{name}.md").write_text(text, "utf-8")
    return [str(fault) for fault in lints.of_annexes(root, SPEC)]


def test_the_annexes_of_this_checkout_have_no_faults() -> None:
    assert list(lints.of_annexes(ROOT, SPEC)) == []


def test_an_annex_is_part_of_the_data(checkout: Path) -> None:
    assert annexes.read_all(checkout) == []
    assert plant(checkout, TEMPLATE) == []
    (annex,) = annexes.read_all(checkout)
    assert (annex.name, annex.area, annex.status) == ("cron", "X-NAME", "experimental")
    made = json.loads(record.render(record.build(SPEC, None, [annex])))
    assert problems("requirements.schema", None, made) == []
    (entry,) = made["annexes"]
    assert entry["profiles"][0]["requires"] == ["client/core"]
    (requirement,) = entry["requirements"]
    assert (requirement["id"], requirement["why"]) == ("X-NAME-1", "the reason.")
    assert requirement["id"] not in [each["id"] for each in made["requirements"]]


def test_a_stable_annex_has_two_implementations(checkout: Path) -> None:
    assert plant(checkout, STABLE + TWO) == []
    (fault,) = plant(checkout, STABLE + TWO.partition("\n")[0] + "\n")
    assert "needs 2 independent implementations, and its table has 1 (annex)" in fault
    (annex,) = annexes.read_all(checkout)
    assert annex.implementations == ("one",)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("Annex **X-NAME**", "Annex **NAME**", "no line has the form 'Annex **X-NAME**"),
        ("**experimental**", "**finished**", "no line has the form 'Annex **X-NAME**"),
        ("[X-NAME-1]", "[X-OTHER-1]", "X-OTHER-1 is not in the area of this annex, X-NAME"),
        ("[X-NAME-1]", "[KEY-1]", "KEY-1 is not in the area of this annex"),
        ("[X-NAME-1]", "[X-NAME-2]", "X-NAME-2 exists, X-NAME-1 does not (gap)"),
        ("> **[X-NAME-1]** ·", "> **[X-NAME-1]**", "not the first line of a block"),
        ("| client/name |", "| client/core |", "client/core is a profile of the specification"),
        ("| client/core | the", "| client/more | the", "requires client/more, which is not"),
        ("**MUST** do one", "**MUST** do **MUST** one", "has MUST, MUST (keyword)"),
        ("Why: the reason.", "The reason.", "no paragraph 'Why: …' follows"),
        ("One paragraph", "It MUST be", "MUST outside a block (stray-keyword)"),
        ("· client/name ·", "· client/core ·", "no requirement belongs to client/name"),
    ],
)
def test_a_fault_in_an_annex_is_found(checkout: Path, old: str, new: str, words: str) -> None:
    assert old in TEMPLATE
    found = plant(checkout, TEMPLATE.replace(old, new))
    assert any(words in fault for fault in found), found
    assert all(fault.startswith("spec/cron.md") for fault in found)


def test_an_area_belongs_to_one_annex(checkout: Path) -> None:
    plant(checkout, TEMPLATE)
    (fault,) = plant(checkout, TEMPLATE, "unique")
    assert "X-NAME is the area of spec/cron.md" in fault


def test_a_file_that_is_not_an_annex_is_refused(checkout: Path) -> None:
    plant(checkout, "# Notes\n")
    with pytest.raises(Malformed, match=r"^spec/cron\.md:1: "):
        annexes.read_all(checkout)


# -- the registry


def cells(name: str) -> list[str]:
    return [entry["name"] for entry in REGISTRY[name]]


REGISTRY = json.loads((ROOT / "schema" / "registry.json").read_text("utf-8"))


def test_the_registry_has_the_names_that_programs_use() -> None:
    """A table that the reader no longer finds would leave its part empty."""
    from jobwire.protocol import poison
    from jobwire.protocol.keys import Keys

    for part in ("keys", "reserved_keys", "fields", "signals", "errors", "members", "prefixes"):
        assert REGISTRY[part], part
        assert len(set(cells(part))) == len(REGISTRY[part]), part
    keys = Keys()
    assert {keys.queues, keys.schedule, keys.retry, keys.dead, keys.processes} <= {*cells("keys")}
    assert {"class", "args", "jid", "queue", "retry", "at", "jw_…"} <= {*cells("fields")}
    assert poison.ERROR_CLASS in cells("errors")
    assert {"TERM", "INT", "TSTP", "TTIN"} == {*cells("signals")}


def test_every_key_and_field_of_the_tables_is_in_the_registry() -> None:
    """Each row of a table of keys or fields, wherever the table stands."""
    keys, fields = {*cells("keys")}, {*cells("fields")}
    text = (ROOT / "SPEC.md").read_text("utf-8")
    section = text[text.index("\n## 5 ") : text.index("\n## 7 ")]
    rows = [line.removeprefix("> ") for line in section.splitlines()]
    named = [row.split("|")[1].strip() for row in rows if row.startswith("| `") and "set |" in row]
    assert len(named) >= 8
    assert {name.strip("`") for name in named} - keys == set()
    assert {entry["owner"] for entry in REGISTRY["keys"]} == {"sidekiq", "jobwire"}
    assert {name for name in keys if name.startswith("jobwire:")} >= {"jobwire:owners"}
    assert len(fields) >= 25


TABLES = """Version **1.0**

## 5 Keys

| Key | Type | Content | Time to live | See |
| --- | --- | --- | --- | --- |
| `j\\|<H>`, `h` | hash | metrics | 60 s | KEY-1 |

> **[KEY-1]** · client/core · interop · all · since 1.0 · test: wire
> Keys **MUST** be these:
>
> | Key | Generations | Type |
> | --- | --- | --- |
> | `jobwire:x` | 7.3, 8.1 | set |

Why: so.

## 6 Fields

| Field | Type | Written by, when |
| --- | --- | --- |
| `bid` | any | commercial editions |

## 27 Changes

| Prefix | Of | Owner | Status | Meaning |
| --- | --- | --- | --- | --- |
| `jw_` | fields | jobwire | used | extensions (KEY-1) |
"""


def test_tables_are_read_inside_and_outside_of_blocks() -> None:
    made = json.loads(registry.render(registry.build(read(TABLES))))
    assert [(key["name"], key["owner"], key["see"]) for key in made["keys"]] == [
        *(("j|<H>", "sidekiq", ["KEY-1"]), ("h", "sidekiq", ["KEY-1"])),
        ("jobwire:x", "jobwire", []),
    ]
    assert [key["generations"] for key in made["keys"]][1:] == [
        ["6.4", "7.3", "8.1"],
        ["7.3", "8.1"],
    ]
    assert made["fields"][0]["reserved"] is True
    assert made["prefixes"][0]["of"] == "fields"
    assert made["signals"] == []
    assert problems("registry.schema", None, made) == []


# -- changes between two versions


OLD = """Version **1.0-draft.1**

> **[KEY-1]** · client/core · interop · all · since 1.0 · test: wire
> A client **MUST** push at the head, and every worker waits at most ten seconds there.

Why: so.

> **[KEY-2]** · client/core · interop · all · since 1.0 · test: wire
> A client **MUST** stay.

Why: so.

> **[KEY-3]** · client/core · interop · all · since 1.0 · test: wire
> A client **MUST** go.

Why: so.

> **[KEY-4]** · client/core · interop · all · since 1.0 · test: wire
> A client **MUST** wait.

Why: so.
"""


def test_changes_are_told_id_by_id() -> None:
    text = OLD.replace("head, and every worker waits at most ten seconds there.", "head.")
    text = text.replace(
        "[KEY-3]** · client/core · interop · all", "[KEY-3]** · client/core · robust · 8.1"
    )
    text = text.replace("**MUST** go", "**SHOULD** go")
    head = "[KEY-4]** · client/core · interop · all · since 1.0"
    text = text.replace(head, f"{head} · retired 1.0")
    text += """
> **[KEY-5]** · worker/core · robust · all · since 1.0 · test: wire
> A worker **MUST** wait at most ten seconds at the head.

Why: so.

> **[KEY-6]** · client/core · interop · all · since 1.0 · test: wire
> A scheduler **MUST** do completely another thing.

Why: so.
"""
    old, new = read(OLD), read(text)
    found = history.changes(old, new)
    assert [(change.id, change.kind) for change in found] == [
        *(("KEY-1", "changed"), ("KEY-3", "changed"), ("KEY-4", "retired")),
        *(("KEY-5", "new"), ("KEY-6", "new")),
    ]
    table = history.markdown(found)
    assert "| KEY-1 | changed | text |\n" in table
    assert (
        "| KEY-3 | changed | keyword MUST → SHOULD; level interop → robust; "
        "generations -6.4, -7.3; text |\n"
    ) in table
    assert "| KEY-5 | new | MUST, robust, worker/core; split from KEY-1 |\n" in table
    assert "| KEY-6 | new | MUST, interop, client/core |\n" in table
    assert history.markdown(history.changes(new, new)) == ""


# -- a new version of the specification


def test_a_new_version_is_named_everywhere(tmp_path: Path) -> None:
    """All files that named the old version name the new one."""
    shutil.copytree(ROOT / "schema", tmp_path / "schema")
    shutil.copy(ROOT / "SPEC.md", tmp_path)
    old = SPEC.version
    assert old is not None
    assert version.main(["9.0.0-rc.1"], tmp_path) == 0
    assert read((tmp_path / "SPEC.md").read_text("utf-8")).version == "9.0.0-rc.1"
    for path in (tmp_path / "schema").iterdir():
        assert f"schema:{old}" not in path.read_text("utf-8"), path.name
    with pytest.raises(SystemExit):
        version.main(["nine"], tmp_path)


# -- The sheet of a claim: its rules, with the tables and terms that these use

SHEETS = sheet.Sheets(ROOT, {"PUSH-1": ["push-one"]})


@pytest.mark.parametrize("generation", data.GENERATIONS)
def test_a_sheet_has_exactly_the_rules_that_the_suite_judges(generation: str) -> None:
    for claim in data.CLAIMS:
        claims = set(data.complete([claim]))
        wanted = {
            each.id
            for each in data.requirements().values()
            if generation in each.generations
            and not each.retired
            and not claims.isdisjoint(each.claims)
        }
        assert {rule.id for rule in SHEETS.of(claim, generation).rules} == wanted, claim


def test_a_sheet_is_read_from_the_first_rule_to_the_last() -> None:
    text = SHEETS.of("worker/core+robust", "8.1").markdown(examples=True)
    numbers = [int(number) for number in re.findall(r"^\*\*(\d+)\. \[", text, re.MULTILINE)]
    assert numbers == [*range(1, len(numbers) + 1)]
    sections = re.findall(r"^## (\d+) ", text, re.MULTILINE)
    assert sections == sorted(sections, key=int)
    assert len(sections) == len({*sections})
    assert "It includes worker/core." in text
    assert "```redis-cli\n" in text
    push = SHEETS.of("client/core", "8.1").markdown()
    assert "Cases: push-one\n" in push
    assert "| payload | the JSON text of a job" in push
    assert "| recover |" not in push  # a term that no rule of the claim uses


def test_a_sheet_has_the_numbered_tables_and_lists_of_its_rules() -> None:
    text = SHEETS.of("worker/reliable", "8.1").markdown()
    for caption in ("## Table 18-1: ", "## List 15-1: ", "## List 17-1: "):
        assert text.count(f"\n{caption}") == 1, caption
    assert "List 17-1" not in SHEETS.of("client/core", "8.1").markdown()


@pytest.mark.process
def test_the_command_prints_a_sheet_or_lists_the_claims() -> None:
    ended = jobwire("spec", "claim", "client/core", "--generation", "7.3")
    assert ended.stdout.startswith("# client/core, generation 7.3\n")
    listed = json.loads(jobwire("spec", "claim", "--json").stdout)
    assert {each["claim"] for each in listed} == {*data.CLAIMS} & data.claims_of("8.1")
    ended = jobwire("spec", "claim", "client/cor")
    assert ended.returncode == 2
    assert "no claim client/cor for generation 8.1; did you mean client/core or" in ended.stderr


def test_a_table_of_claims_that_is_out_of_date_is_found(tmp_path: Path) -> None:
    for name in ("SPEC.md", "spec", "schema", "lua"):
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, tmp_path / name)
    spec = tmp_path / sheet.PAGE
    text = spec.read_text("utf-8")
    wrong = re.sub(r"(?<=\n\| client/core \| )\d+", "1", text)
    assert wrong != text
    spec.write_text(wrong, "utf-8")
    found = [*lints.of_records(tmp_path, read_checkout(tmp_path))]
    assert [(each.place, each.lint) for each in found] == [("SPEC.md", "out-of-date")]
    assert sheet.updated(tmp_path) == text
