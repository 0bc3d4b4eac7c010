"""The sheet of a claim: its rules, with the tables and terms that these use."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from jobwire_conformance import data
from jobwire_conformance.spec import lints, sheet
from jobwire_conformance.spec.document import read_checkout
from tests.workers import jobwire

ROOT = Path(__file__).resolve().parents[3]
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
