"""Lawful variants of the reference: their files, their rounds, and a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.servers import valkey_program
from jobwire_conformance import config, data
from jobwire_conformance.cases import case as cases
from jobwire_conformance.cli import conform
from jobwire_conformance.errors import SuiteFault, Usage
from jobwire_conformance.mutation import variants
from jobwire_conformance.mutation.variants import Variant
from tests.conformance.suite import ROOT, Quiet
from tests.rows import over

pytestmark = pytest.mark.process

ALL = variants.load()
ROUNDS = variants.rounds(ALL, cases.load())


def sources_of(group: Sequence[Variant]) -> dict[str, str]:
    """Return the files that the patches change, as `mutation.source` applies them."""
    texts: dict[str, str] = {}
    for edit in (edit for variant in group for edit in variant.patch):
        text = texts.get(edit.file) or (ROOT / edit.file).read_text("utf-8")
        texts[edit.file] = edit.apply(text)
        assert texts[edit.file] != text, edit
    return texts


@pytest.mark.process
@pytest.mark.parametrize(
    "group", [[v] for v in ALL] + ROUNDS, ids=lambda group: "+".join(v.name for v in group)
)
def test_patches_fit_the_source_and_each_other(group: Sequence[Variant]) -> None:
    for file, text in sources_of(group).items():
        if file.endswith(".py"):
            compile(text, file, "exec")


@over("variant", ALL, ids=lambda variant: variant.name)
def test_a_variant_concerns_cases_and_open_requirements(variant: Variant) -> None:
    assert variants.cases_of([variant], cases.load())
    assert (data.reference_directory() / variant.settings).exists()
    settings = config.load(data.reference_directory() / variant.settings)
    profiles = {claim.removesuffix(data.ROBUST) for claim in settings.claims}
    assert set(variant.claims) <= profiles
    for id_ in variant.excepted:
        assert data.requirements()[id_].level == "robust", id_


def test_a_round_has_one_variant_of_an_aspect() -> None:
    for group in ROUNDS:
        assert len({variant.aspect for variant in group}) == len(group)
        assert len({variant.settings for variant in group}) == 1
    assert sorted(v.name for group in ROUNDS for v in group) == sorted(v.name for v in ALL)


@pytest.mark.process
def test_every_pattern_fits_a_case() -> None:
    """A case that is renamed must not drop out unnoticed."""
    for variant in ALL:
        for pattern in (*variant.cases, *variant.without):
            assert cases.load(names=[pattern]), f"{variant.name}: {pattern}"


def test_cases_that_cannot_fail_are_left_out() -> None:
    (variant,) = variants.load(["functions"])
    assert variant.excepted == ["SEC-3"]
    chosen = {case.name for case in variants.cases_of([variant], cases.load())}
    assert "reliable-acl" not in chosen
    assert "reliable-scripts" in chosen


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Have variants come from an empty directory; return it."""
    monkeypatch.setattr(data, "variants_directory", lambda: tmp_path)
    return tmp_path


def planted(directory: Path, times: int = 1, **changes: object) -> None:
    variant = {
        **{"variant": "planted", "title": "x", "lawful": ["PUSH-1"], "aspect": "x"},
        **{"cases": ["push-head"], "patch": [{"file": "a", "old": "b", "new": "c"}]},
    }
    (directory / "planted.json").write_text(json.dumps([{**variant, **changes}] * times))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"times": 2}, "two variants have the name planted"),
        ({"lawful": ["-".join(("PUSH", "999"))]}, "SPEC.md has no requirement"),
        ({"patch": []}, "planted.json: planted: patch"),
    ],
)
def test_a_mistake_in_a_file_is_named(plant: Path, changes: dict[str, Any], says: str) -> None:
    planted(plant, **changes)
    with pytest.raises(SuiteFault, match=says):
        variants.load()


def test_an_unknown_name_is_named() -> None:
    with pytest.raises(Usage, match="no variant nothing"):
        variants.load(["nothing"])


def test_a_variant_that_is_not_lawful_is_refused(plant: Path) -> None:
    """Otherwise a green run would say nothing."""
    mutants = json.loads((data.source_mutants_directory() / "jobwire.json").read_bytes())["mutants"]
    (mutant,) = (each for each in mutants if each["kills"] == ["PUSH-1"])
    planted(plant, patch=mutant["patch"], cases=mutant["cases"])
    arguments = ["variants", "--sandboxes", "1", "--server", valkey_program()]
    done = CliRunner().invoke(conform, arguments, standalone_mode=False)
    assert done.return_value == 1, done.output
    assert "FAIL" in done.output
    assert "#PUSH-1: " in done.output


def test_a_lawful_variant_passes() -> None:
    (variant,) = variants.load(["slices-of-500"])
    (case,) = cases.load(names=["bulk-failed-slice"])
    trial = variants.trial([variant], [case], watcher=Quiet(), program=valkey_program())
    assert trial.ok, trial
    assert trial.passed
