"""Levels and generations of claims: the checks that count, and the claims that are met."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from jobwire_conformance import config, data
from jobwire_conformance.cases import case as cases
from jobwire_conformance.cases.case import Case
from jobwire_conformance.cli._settings import settings
from jobwire_conformance.data import GENERATIONS
from jobwire_conformance.errors import Usage
from jobwire_conformance.run import run, verdicts
from jobwire_conformance.run.checks import CheckResult
from jobwire_conformance.run.traffic import Traffic
from jobwire_conformance.wire.call import Call
from tests.conformance.suite import ROOT, Quiet, adapter
from tests.conformance.traffic import JOB, text

EMPTY = {"check": "PUSH-1", "list": "queue:default", "len": 0}
FULL = {"check": "PUSH-1", "list": "queue:default", "len": 1}


def case(*checks: str, generations: tuple[str, ...] = GENERATIONS) -> Case:
    """Return a case of clients that checks these requirements."""
    steps = [{"check": id_} for id_ in checks]
    profiles = ("client/core", "client/bulk")
    return Case("made", "", profiles, None, generations, (), (), steps, None)


def judged(of: Case, claims: list[str], generation: str, **ok: bool) -> dict[str, str]:
    """Return claim and status of each verdict; `ok` has an underscore in each id."""
    results = [CheckResult(id_.replace("_", "-"), holds, "no") for id_, holds in ok.items()]
    found = verdicts.judge(of, results, claims, generation, [])
    return {f"{verdict.requirement} {verdict.claim}": verdict.status for verdict in found}


def test_the_claims_are_those_of_the_requirements() -> None:
    """A profile has an interop claim and a robust one, or only one if it has only one level."""
    asked = {claim for rule in data.requirements().values() for claim in rule.claims}
    assert asked == {*data.CLAIMS}


@pytest.mark.parametrize(
    ("claims", "included"),
    [
        (["client/core"], ["client/core"]),
        (["client/core+robust"], ["client/core", "client/core+robust"]),
        (["client/core+robust", "client/core"], ["client/core", "client/core+robust"]),
    ],
)
def test_a_robust_claim_includes_the_interop_claim(
    claims: list[str], included: list[str], tmp_path: Path
) -> None:
    path = adapter(tmp_path, claims=tuple(claims))
    assert config.expanded(claims) == [*config.load(path).claims] == included


def test_a_claim_is_made_together_with_those_that_it_requires(tmp_path: Path) -> None:
    (tmp_path / "conformance.toml").write_text(
        '[implementation]\nname = "x"\nclaims = ["client/bulk+robust", "client/core"]\n'
        '[driver]\ncommand = ["x"]\n'
    )
    with pytest.raises(Usage, match=r"client/bulk\+robust requires client/core\+robust; add"):
        config.load(tmp_path)
    claims = ["client/core", "client/core+robust", "client/bulk", "client/bulk+robust"]
    assert data.complete(["client/bulk+robust"]) == claims
    assert "worker/signals+robust" in data.complete(["worker/reliable"])


def test_a_generation_has_only_the_claims_that_it_has_requirements_for(tmp_path: Path) -> None:
    """Sidekiq has iterable jobs since 7.3."""
    path = tmp_path / "conformance.toml"
    path.write_text(
        '[implementation]\nname = "x"\ngeneration = "6.4"\n'
        'claims = ["worker/core", "worker/retry", "worker/signals", "worker/iteration"]\n'
        '[worker]\ncommand = ["x"]\n'
    )
    with pytest.raises(Usage, match=r"generation 6\.4 has no claim worker/iteration; remove it"):
        config.load(path)
    path.write_text(path.read_text().replace("6.4", "7.3"))
    claims = ["worker/core", "worker/retry", "worker/signals"]
    assert settings([], path, "6.4").claims == claims
    assert [*settings([], path, None).claims] == [*claims, "worker/iteration"]


def test_a_check_counts_at_the_level_of_its_requirement() -> None:
    """PUSH-1 is interop, PUSH-4 is robust."""
    both = ["client/core", "client/core+robust"]
    made = case("PUSH-1", "PUSH-4")
    assert judged(made, both, "8.1", PUSH_1=True, PUSH_4=False) == {
        "PUSH-1 client/core": "pass",
        "PUSH-4 client/core+robust": "fail",
    }
    assert judged(made, both[:1], "8.1", PUSH_1=True, PUSH_4=False) == {
        "PUSH-1 client/core": "pass"
    }


def test_a_check_counts_in_the_generations_of_its_requirement() -> None:
    """GEN-1 is of 6.4 and 7.3, BULK-7 of 8.1."""
    claims = ["client/core", "client/bulk"]
    made = case("GEN-1", "BULK-7")
    for generation in ("6.4", "7.3"):
        verdict = judged(made, claims, generation, GEN_1=True, BULK_7=False)
        assert verdict == {"GEN-1 client/core": "pass"}
        assert made.checks_for(claims, generation) == ["GEN-1"]
    assert judged(made, claims, "8.1", GEN_1=False, BULK_7=True) == {"BULK-7 client/bulk": "pass"}
    assert run.chosen([case("GEN-1")], claims, "8.1") == []
    assert run.chosen([case("PUSH-1", generations=("6.4",))], claims, "8.1") == []


def test_a_robust_claim_needs_the_interop_claim() -> None:
    made = case("PUSH-1", "PUSH-4")
    claims = ["client/core", "client/core+robust"]
    for interop, robust, met in (
        (True, True, [True, True]),
        (True, False, [True, False]),
        (False, True, [False, False]),
    ):
        results = [CheckResult("PUSH-1", interop), CheckResult("PUSH-4", robust)]
        found = verdicts.judge(made, results, claims, "8.1", [])
        statuses = verdicts.summary(claims, found, [made], "8.1")
        assert [statuses[claim].met for claim in claims] == met


@pytest.mark.process
def test_a_check_of_other_generations_is_left_out(tmp_path: Path) -> None:
    """Steps with `generations` are for these alone."""
    made = replace(config.load(adapter(tmp_path)), claims=["client/core"])
    pairs: list[tuple[config.Generation, str]] = [("7.3", "pass"), ("8.1", "fail")]
    for generation, status in pairs:
        steps = [
            {**EMPTY, "generations": ["7.3"]},
            {**FULL, "generations": ["6.4", "8.1"]},
        ]
        outcome = run.run(
            replace(made, generation=generation),
            [replace(case("PUSH-1"), steps=steps)],
            (),
            watcher=Quiet(),
        )
        about = [v.status for v in outcome.verdicts if v.case == "made"]
        assert (outcome.errors, about) == ([], [status])


@pytest.mark.parametrize(
    ("result", "is_evidence"),
    [
        (CheckResult("PUSH-18", False), False),  # robust: only then does a client refuse the push
        (CheckResult("PUSH-18", True), True),
        (CheckResult("PUSH-1", False), True),
    ],
)
def test_a_failed_case_of_robust_checks_does_not_test_interop(
    result: CheckResult, is_evidence: bool
) -> None:
    """KEY-5: other keys are held against an implementation, except in such a case."""
    traffic = Traffic(config.load(ROOT / "conformance" / "drivers" / "python"))
    words = [b"LPUSH", b"low", text(JOB).encode()]
    call = Call(1, 1, words, "LPUSH", b"", time.monotonic())
    call.reply, call.answered = b":1\r\n", call.at
    (case,) = cases.load(names=["push-spoilt"])
    failures = traffic.look(case, [("driver", call)], [result])
    assert ("KEY-5" in {failure.requirement for failure in failures}) is is_evidence
