"""The mutants of the source: their files, the patched copies, and the runs."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.servers import valkey_program
from jobwire_conformance import config, data
from jobwire_conformance.cases import case as cases
from jobwire_conformance.config import Config
from jobwire_conformance.errors import SuiteFault, Usage
from jobwire_conformance.mutation import kills, source
from jobwire_conformance.reports.source_kills import FirstTry, section
from tests.conformance.pages import first_tries, source_tables
from tests.conformance.suite import ROOT

pytestmark = pytest.mark.matrix  # quotes lines of the reference

REFERENCE = ROOT / "conformance" / "drivers" / "python" / "conformance.toml"
LISTS = sorted(data.source_mutants_directory().glob("*/*.json"))


@pytest.fixture
def reference(monkeypatch: pytest.MonkeyPatch) -> Config:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
    return config.load(REFERENCE)


@pytest.mark.parametrize("path", LISTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_list_is_of_one_family_and_names_cases_that_check_its_requirements(path: Path) -> None:
    by_name = {case.name: case for case in cases.load()}
    for each in source.load_file(path):
        families = {id_.partition("-")[0] for id_ in each.mutant.kills}
        assert path.stem in families, each.mutant.name
        assert set(each.mutant.cases) <= set(by_name), each.mutant.name


def test_every_patch_applies_to_the_source(reference: Config) -> None:
    for each in source.load("jobwire"):
        for edit in each.patch:
            text = (ROOT / edit.file).read_text("utf-8")
            assert text.count(edit.old) == 1, f"{each.mutant.name}: {edit.file}"
            assert edit.new != edit.old


def test_a_patched_copy_differs_in_the_patch_alone(reference: Config) -> None:
    (mutant,) = (m for m in source.load("jobwire") if m.mutant.name == "pushes-at-the-tail")
    (edit,) = mutant.patch
    with source.patched(mutant.patch, reference) as variables:
        top = Path(variables["PYTHONPATH"].partition(":")[0]).parent
        changed = [
            str(path.relative_to(top))
            for path in sorted(top.rglob("*.py"))
            if path.read_bytes() != (ROOT / path.relative_to(top)).read_bytes()
        ]
        assert changed == [edit.file]
    assert not top.exists()


def test_a_text_that_is_not_there_once_is_refused(reference: Config) -> None:
    edit = source.Edit("python/jobwire/errors.py", "no such text", "")
    with (
        pytest.raises(SuiteFault, match=re.escape("errors.py has 0 times, not once")),
        source.patched([edit], reference),
    ):
        pytest.fail("the patch was applied")


def test_other_files_cannot_be_patched(reference: Config) -> None:
    with (
        pytest.raises(SuiteFault, match=r"cannot change SPEC\.md"),
        source.patched([source.Edit("SPEC.md", "a", "b")], reference),
    ):
        pytest.fail("the patch was applied")


def test_an_implementation_without_mutants_is_told_so() -> None:
    with pytest.raises(Usage, match="no mutants of the source of 'other'"):
        source.load("other")


def test_a_mutant_is_found_by_a_check_of_its_requirement(reference: Config) -> None:
    sources = source.Sources.of(reference)
    (mutant,) = (each for each in sources.mutants if each.name == "pushes-at-the-tail")
    table = kills.kill(
        reference,
        [mutant],
        cases.load(),
        program=valkey_program(),
        plant=sources.planted,
    )
    sources.describe(table)
    assert [(row["fate"], row["by"], row["operator"]) for row in table["mutants"]] == [
        ("killed", ["push-head", "traffic"], "wrong-end")
    ]


def test_an_unchanged_copy_survives(reference: Config, tmp_path: Path) -> None:
    """A patch that alters nothing has to survive, or every mutant would count as killed."""
    same = {"file": "python/jobwire/errors.py", "old": '"""', "new": '"""'}
    head = (ROOT / same["file"]).read_text("utf-8").partition("\n")[0]
    same |= {"old": head, "new": head + " "}
    row = {
        **{"mutant": "nothing", "kills": ["PUSH-1"], "clause": "none", "operator": "other"},
        **{"cases": ["push-head"], "patch": [same]},
    }
    path = tmp_path / "PUSH.json"
    path.write_text(json.dumps({"mutants": [row]}))
    sources = source.Sources(reference, source.load_file(path))
    table = kills.kill(
        reference, sources.mutants, cases.load(), program=valkey_program(), plant=sources.planted
    )
    assert [row["fate"] for row in table["mutants"]] == ["survived"]


def _table(day: str, fates: dict[str, kills.Fate]) -> kills.Table:
    rows: list[kills.Kill] = [
        {"mutant": name, "requirement": "PUSH-1", "fate": fate, "by": []}
        for name, fate in fates.items()
    ]
    return {
        "kills": 1,
        "spec": "1.0",
        "suite": "1",
        "server": "valkey 9",
        "implementation": {"name": "x", "version": "1"},
        "started": f"{day}T00:00:00Z",
        "seconds": 1.0,
        "mutants": rows,
    }


def test_a_later_run_replaces_its_own_rows_and_dates_them() -> None:
    kept = _table("2026-11-23", {"a": "survived", "b": "killed", "withdrawn": "killed"})
    later = _table("2026-11-25", {"a": "killed", "c": "survived"})
    table = kills.merged(kept, later, ["c", "b", "a"])
    assert [(r["mutant"], r["fate"], r.get("day")) for r in table["mutants"]] == [
        ("c", "survived", "2026-11-25"),
        ("b", "killed", None),
        ("a", "killed", "2026-11-25"),
    ]
    assert table["started"] == kept["started"]


def test_the_page_names_the_days_of_later_runs() -> None:
    table = _table("2026-11-23", {"a": "killed"})
    rows = table["mutants"]
    rows += [{**rows[0], "mutant": "b", "clause": "c", "day": "2026-11-25"}]
    rows[0]["clause"] = "c"
    assert "| 2026-11-23; 1 on 2026-11-25 |" in section([table])


def test_the_page_compares_the_first_try_with_today() -> None:
    table = _table("2026-11-25", {"a": "killed", "b": "survived", "c": "killed"})
    for row in table["mutants"]:
        row["clause"] = "c"
    tries: list[FirstTry] = [
        {"day": "2026-11-25", "implementation": "x", "mistakes": 3, "missed": ["a", "b"]}
    ]
    assert "| x | 2026-11-25 | 3 | 1 (33.3 %) | 2 |" in section([table], tries)


def test_the_missed_mistakes_of_a_first_try_are_among_the_mutants() -> None:
    for each in first_tries():
        known = {mutant.mutant.name for mutant in source.load(each["implementation"])}
        assert set(each["missed"]) <= known, each["implementation"]
        assert len(each["missed"]) < each["mistakes"] <= len(known)


def test_every_mutant_has_a_row_in_a_stored_table() -> None:
    for table in source_tables():
        name = table["implementation"]["name"]
        rows = {(row["mutant"], row["requirement"]) for row in table["mutants"]}
        wanted = {(m.mutant.name, id_) for m in source.load(name) for id_ in m.mutant.kills}
        assert rows == wanted, name


PLANTED = json.loads((ROOT / "conformance" / "planted.json").read_bytes())["rows"]


@pytest.mark.parametrize("row", PLANTED, ids=lambda row: str(row["mistake"]))
def test_a_mistake_that_others_planted_is_found_by_a_case(row: dict[str, Any]) -> None:
    """Two people who had written no check made these mistakes, and the suite of then was green."""
    by = {
        f"{table['implementation']['name']}/{kill['mutant']}": kill["by"]
        for table in source_tables()
        for kill in table["mutants"]
        if kill["requirement"] == row["requirement"] and kill["fate"] == "killed"
    }
    for mutant in row["mutants"]:
        assert set(by[mutant]) - {"traffic"}, mutant
