"""The mutants of the source: their files, the patched copies, and the runs."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from harness.servers import valkey_program
from jobwire_conformance import config, data
from jobwire_conformance.cases import case as cases
from jobwire_conformance.config import Config
from jobwire_conformance.errors import SuiteFault, Usage
from jobwire_conformance.mutation import kills, source
from tests.conformance.suite import ROOT

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
