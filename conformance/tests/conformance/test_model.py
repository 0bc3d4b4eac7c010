"""`jobwire conform explore`: the model's expectations, and the failures that it finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test
from jsonschema import Draft202012Validator

from harness.servers import valkey_program
from jobwire_conformance import config, data
from jobwire_conformance.cases import case as cases
from jobwire_conformance.config import Config
from jobwire_conformance.data import CLAIMS, ROBUST
from jobwire_conformance.errors import AdapterFault
from jobwire_conformance.model import shrunk_case
from jobwire_conformance.model.actions import Action, Impossible
from jobwire_conformance.model.explore import REPLAYS, Explored, Options, explore
from jobwire_conformance.model.machine import machine
from jobwire_conformance.model.model import Model, Step, script
from jobwire_conformance.model.pools import BOUNDARIES, SHARE, values
from jobwire_conformance.model.trial import Failure
from jobwire_conformance.mutation import mutants
from jobwire_conformance.wire.faults import Rewrite, Rule

pytestmark = pytest.mark.matrix

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = ROOT / "conformance" / "drivers" / "python"
PROFILES = [*dict.fromkeys(claim.removesuffix(ROBUST) for claim in CLAIMS)]
CLIENT = [claim for claim in CLAIMS if claim.startswith("client/")]
_ELSEWHERE = ("worker/iteration", "worker/metrics")
WORKER = [
    claim
    for claim in CLAIMS
    if claim.startswith(("worker/", "scheduler/")) and not claim.startswith(_ELSEWHERE)
]


@pytest.fixture(autouse=True)
def _python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `python3` in the adapters' commands be the one that runs the tests."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))


def reference(claims: Sequence[str] | None = None) -> Config:
    settings = config.load(REFERENCE)
    return settings if claims is None else replace(settings, claims=[*claims])


def options(directory: Path, **more: Any) -> Options:
    return Options(program=valkey_program(), directory=directory, **more)


def explored(
    settings: Config, directory: Path, *, mutant: mutants.Mutant | None = None, **more: Any
) -> Explored:
    """Explore the reference, with a mistake or without one."""
    return explore(
        mutant.on(settings) if mutant else settings,
        options(directory, **more),
        rewrites=mutant.rules if mutant else (),
    )


def key(value: object) -> str:
    """Return a text that tells -0.0 from 0.0 and 1 from 1.0."""
    return json.dumps(value, sort_keys=True)


def examples(claims: Sequence[str], *, count: int = 60, steps: int = 8) -> list[list[Action]]:
    """Return the steps that the machine chooses for these claims, without running them."""
    chosen: list[list[Action]] = []
    run_state_machine_as_test(
        machine(claims, lambda actions: chosen.append([*actions])),
        settings=settings(
            max_examples=count,
            stateful_step_count=steps,
            derandomize=True,
            database=None,
            deadline=None,
            phases=(Phase.generate,),
            suppress_health_check=[*HealthCheck],
        ),
    )
    return chosen


def flat(actions: Sequence[Action], claims: Sequence[str]) -> list[Step]:
    return [step for part in script(actions, claims) for step in part]


# -- choice of steps and values


def test_awkward_values_are_at_least_three_in_ten() -> None:
    """[PAY-5] [PAY-6]: a uniform draw would have one in thousands."""
    known = {key(value) for value in BOUNDARIES}
    drawn: list[str] = []

    @settings(max_examples=600, derandomize=True, database=None, phases=[Phase.generate])
    @given(st.lists(values(), min_size=10, max_size=10))
    def draw(chosen: list[Any]) -> None:
        drawn.extend(map(key, chosen))

    draw()
    awkward = [value for value in drawn if value in known]
    assert len(drawn) >= 1000
    assert len(awkward) / len(drawn) >= 0.3
    assert {*awkward} == known, "each of them turns up"
    assert SHARE >= 0.3


def test_the_pool_has_every_kind_of_awkward_value() -> None:
    known = {key(value) for value in BOUNDARIES}
    wanted = [2**53 + 1, 2**53 - 1, 2**63 - 1, 1e16, -0.0, "\x00", "", [], {}]
    assert {key(value) for value in wanted} <= known
    assert any("\U0001f600" in str(value) for value in BOUNDARIES)
    assert any(isinstance(value, dict) and len(next(iter(value), "")) > 100 for value in BOUNDARIES)
    assert max(key(value).count("[") for value in BOUNDARIES) == 98


def test_integers_and_floats_are_looked_at_apart() -> None:
    """[PAY-5] [PAY-6]: the type of the changed value decides the requirement."""
    args = [5, True, {"n": [1.0, "x"]}]
    push = Action(
        "push", {"kind": "Echo", "args": args, "queue": "low", "fields": {"x_trace": 2.5}}
    )
    steps = {step["check"]: step for step in flat([push], ["client/core"]) if "check" in step}
    any_ = {"$": "any"}
    assert steps["PAY-5"]["payload"] == {"args": [5, True, {"n": [any_, "x"]}], "x_trace": any_}
    assert steps["PAY-6"]["payload"] == {"args": [any_, *args[1:]], "x_trace": 2.5}


def test_every_example_is_a_case() -> None:
    """All steps of the model have the form of cases, and name claimed requirements."""
    forms: dict[str, Step] = {}
    checked: set[str] = set()
    for actions in examples(CLAIMS, count=200):
        steps = flat(actions, CLAIMS)
        # One of each form is enough, because the schema is slow.
        forms |= {f"{next(iter(step))} {sorted(step)}": step for step in steps}
        checked |= {step["check"] for step in steps if "check" in step}
    verbs = {form.partition(" ")[0] for form in forms}
    case = {"case": "x", "title": "x", "claims": [*PROFILES], "since": "1.0"}
    problems = Draft202012Validator(data.schema("case")).iter_errors(
        {**case, "steps": [*forms.values()]}
    )
    assert [problem.message for problem in problems] == []
    every = {"push", "push_bulk", "seed", "warp", "start", "stop", "kill", "signal", "release"}
    assert every | {"fault", "heal", "settle", "await", "check"} <= verbs
    core = {"PUSH-1", "PUSH-8", "PAY-5", "PAY-6", "PAY-7", "RETRY-2", "FETCH-1", "STAT-1", "SIG-1"}
    assert core <= checked
    assert {*data.requirements()} >= checked


@pytest.mark.parametrize(
    ("claims", "allowed"),
    [
        (["client/core"], {"push", "refused"}),
        (["client/core", "client/faults"], {"push", "refused", "disturbed", "doubtful"}),
        (["worker/core"], {"seed", "start", "release", "kill"}),
        (["worker/core", "worker/signals"], {"seed", "start", "release", "kill", "stop"}),
    ],
)
def test_claims_decide_what_is_done_and_judged(claims: list[str], allowed: set[str]) -> None:
    """Unclaimed operations are neither called nor judged. [PUSH-8] [SCHED-1]"""
    requirements = data.requirements()
    done: set[str] = set()
    for actions in examples(claims, count=150):
        done |= {action.verb for action in actions}
        for step in flat(actions, claims):
            assert "check" not in step or {*claims} & {*requirements[step["check"]].claims}
            assert "at" not in step or "fault" in step
    assert done == allowed


def test_known_deviations_are_not_looked_for() -> None:
    """They are not judged, and no step exists only for them. [PUSH-4]"""
    push = Action("push", {"kind": "Echo", "args": [1], "queue": "low", "fields": {}})
    refused = Action("refused", {"job": {"args": []}, "rule": "PUSH-4"})
    model = Model(CLAIMS, ["PUSH-4", "KEY-5"])
    with pytest.raises(Impossible):
        model.apply(refused)
    judged = {step["check"] for step in model.apply(push) if "check" in step}
    assert "PUSH-1" in judged
    assert "KEY-5" not in judged
    assert Model(CLAIMS).apply(refused)


def test_only_what_is_claimed_may_fail() -> None:
    """[RETRY-2] needs the claim worker/retry: without it, no job fails."""
    kinds = {
        action.given.get("kind") for actions in examples(["worker/core"]) for action in actions
    }
    assert kinds <= {None, "Echo", "Gate"}


def test_the_same_examples_every_time() -> None:
    again = [[action.key for action in actions] for actions in examples(CLAIMS)]
    assert [[action.key for action in actions] for actions in examples(CLAIMS)] == again


def test_an_act_that_makes_no_sense_changes_nothing() -> None:
    model = Model(CLAIMS)
    push = {"kind": "Echo", "args": [1], "queue": "default", "fields": {}}
    before = model.apply(Action("push", push))
    with pytest.raises(Impossible):
        model.apply(Action("release"))
    assert model.jobs == 1
    assert before == script([Action("push", push)], CLAIMS)[0]


# -- the model itself


def seed(kind: str, args: list[Any], **more: Any) -> Action:
    common = {"queue": "low", "fields": {}, "spelling": "compact"}
    return Action("seed", {"kind": kind, "args": args, **common, **more})


def checks(actions: Sequence[Action], requirement: str) -> list[Step]:
    return [step for step in flat(actions, CLAIMS) if step.get("check") == requirement]


def test_a_failure_counts_from_zero_and_then_up() -> None:
    """[RETRY-2] [RETRY-17]: the count grows by one each time, and failed_at stays."""
    first = checks([seed("Fail", ["no"]), Action("start", {"serve": True})], "RETRY-2")
    assert [step["payload"]["retry_count"] for step in first] == [0]
    assert first[0]["payload"]["retried_at"] == {"$": "absent"}
    later = [
        seed("Fail", ["no"], count=3, failed_at=1700000000.5),
        Action("start", {"serve": True}),
    ]
    fields = checks(later, "RETRY-17")[0]["payload"]
    assert (fields["retry_count"], fields["failed_at"]) == (4, 1700000000.5)


@pytest.mark.parametrize(
    ("retry", "count", "place"),
    [
        *((True, None, "retry"), (True, 23, "retry"), (True, 24, "dead")),
        *((1, None, "retry"), (1, 0, "dead"), (0, None, "dead")),
    ],
)
def test_a_job_dies_at_its_limit(retry: bool | int, count: int | None, place: str) -> None:
    """[RETRY-1] [RETRY-5]"""
    failed = seed("Fail", ["no"], retry=retry, count=count, failed_at=1700000000.5)
    steps = flat([failed, Action("start", {"serve": True})], CLAIMS)
    sizes = {step["zset"]: step["len"] for step in steps if "zset" in step and "len" in step}
    assert sizes == {"schedule": 0, "retry": 0, "dead": 0} | {place: 1}


def test_a_gate_holds_up_everything_behind_it() -> None:
    """[FETCH-1]: with one executor, the jobs behind it are still in their queue."""
    actions = [
        seed("Echo", [1]),
        seed("Gate", []),
        seed("Echo", [2]),
        Action("start", {"serve": True}),
    ]
    held = checks(actions, "FETCH-1")
    assert [step["len"] for step in held if "list" in step] == [1]
    through = checks([*actions, Action("release")], "FETCH-1")
    assert [step["len"] for step in through if "list" in step] == [1, 0]
    jids = [f"{number:024x}" for number in (1, 2, 3)]
    assert through[-2]["that"] == {"started": "*", "is": jids}


def test_a_gate_that_is_taken_at_once_is_not_looked_for_in_its_queue() -> None:
    """[FETCH-1]: an idle worker already holds it."""
    start = [seed("Echo", [1]), Action("start", {"serve": True})]
    push = {"kind": "Gate", "args": [], "queue": "low", "fields": {"x_trace": 0, "bid": "b-1"}}
    steps = script([*start, Action("push", push)], CLAIMS)[-1]
    assert [step for step in steps if "list" in step and "payload" in step] == []
    assert {"await": {"began": "{j2}", "is": 1}} in steps


# -- failures that were found


def test_a_found_case_says_how_often_it_failed(tmp_path: Path) -> None:
    actions = [seed("Fail", ["no"]), Action("start", {"serve": True})]
    check = checks(actions, "RETRY-2")[0]
    case = shrunk_case.as_case(actions, Failure(1, check, ""), reference())
    assert case["seed"]
    assert [next(iter(step)) for step in case["steps"]] == ["start", "settle", "check"]
    assert "flaky" not in shrunk_case.label(case, 5, 5)["title"]
    flaky = shrunk_case.label(case, 2, 5)
    assert "flaky, failed in 2/5" in flaky["title"]
    path = shrunk_case.write(flaky, tmp_path)
    assert cases.load_file(path).requirements == ["RETRY-2"]
    assert path.stem == shrunk_case.label(case, 5, 5)["case"], (
        "named after its steps, not after chance"
    )


def test_acts_that_are_not_needed_are_left_out() -> None:
    push = {"kind": "Echo", "args": [1], "queue": "default", "fields": {}}
    actions = [Action("push", {**push, "args": [number]}) for number in range(5)]

    def play(left: Sequence[Action]) -> Failure | None:
        script(left, CLAIMS)
        wrong = [index for index, action in enumerate(left) if action.given["args"] == [3]]
        return Failure(wrong[0], {"check": "PUSH-1"}, "") if wrong else None

    failure = play(actions)
    assert failure is not None
    left, last = shrunk_case.fewer(actions, failure, play)
    assert [action.given["args"] for action in left] == [[3]]
    assert last.action == 0


def test_values_are_made_simpler() -> None:
    """Only the value that matters stays, at any place."""
    awkward = {"a": [1, {"b": [2**53 + 1, "x"]}], "c": 1.5}
    given = {"kind": "Echo", "args": [awkward, []], "queue": "low", "fields": {"x_trace": "y"}}

    def play(left: Sequence[Action]) -> Failure | None:
        script(left, CLAIMS)
        wrong = str(2**53 + 1) in left[0].key
        return Failure(0, {"check": "PAY-5"}, "") if wrong else None

    actions = [Action("push", given)]
    failure = play(actions)
    assert failure is not None
    left, _ = shrunk_case.simpler(actions, failure, play)
    assert left[0].given == {
        "kind": "Echo", "args": [2**53 + 1], "queue": "default", "fields": {}
    }  # fmt: skip


# -- with an implementation


def test_nothing_is_found_in_the_reference_s_client(tmp_path: Path) -> None:
    """[PUSH-1] [PUSH-8] [SCHED-1] [BULK-5] and the rules about values."""
    result = explored(reference(CLIENT), tmp_path, examples=12)
    assert (result.failure, [*tmp_path.iterdir()]) == (None, [])
    assert result.examples >= 8
    assert {"PUSH-1", "PUSH-8", "PAY-5", "PAY-6", "KEY-5"} <= {*result.checked}


def test_nothing_is_found_in_the_reference_s_worker(tmp_path: Path) -> None:
    """[FETCH-1] [EXEC-1] [RETRY-2] [PAY-7] [SCHED-6]"""
    result = explored(reference(WORKER), tmp_path, examples=6, patience=20.0)
    assert (result.failure, [*tmp_path.iterdir()]) == (None, [])
    assert {"FETCH-1", "EXEC-1"} <= {*result.checked}


@pytest.mark.full
@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("name", ["conformance.toml", "basic.toml", "asyncio.toml"])
def test_nothing_is_found_in_the_reference(name: str, seed: int | None, tmp_path: Path) -> None:
    """All claims at once, in three configurations. [PUSH-1] [FETCH-1] [RETRY-2] [SCHED-6]"""
    settings = config.load(REFERENCE / name)
    result = explored(settings, tmp_path, examples=60, steps=10, seed=seed, patience=20.0)
    assert result.failure is None, result.as_data()


FOUND = [
    ("through-doubles", ["client/core"], 40),
    ("insert-at-tail", ["client/core"], 40),
    pytest.param("whole-floats-as-integers", ["client/core"], 40, marks=pytest.mark.full),
    ("retry-forgets-fields", ["worker/core", "worker/retry"], 8),
]


@pytest.mark.parametrize(("name", "claims", "shrinks"), FOUND)
def test_a_mistake_is_found_and_made_small(
    name: str, claims: list[str], shrinks: int, tmp_path: Path
) -> None:
    """The case has at most three steps, and can be replayed."""
    mutant = mutants.named(name)
    result = explored(
        reference(claims), tmp_path, mutant=mutant, examples=60, shrinks=shrinks, patience=5.0
    )
    assert result.failure is not None
    assert result.failure.requirement in mutant.kills
    assert (result.failed, len(result.steps) <= 3) == (REPLAYS, True), result.steps
    assert result.path is not None
    case = cases.load_file(result.path)
    assert case.requirements == [result.failure.requirement]
    assert f"failed in {REPLAYS}/{REPLAYS}" in case.title
    # The reference without the mistake passes it.
    command = [sys.executable, "-m", "jobwire", "conform", "replay", str(result.path)]
    path = os.pathsep.join([str(ROOT / "python"), str(ROOT / "conformance")])
    done = subprocess.run(
        [*command, "-C", str(REFERENCE / "conformance.toml"), "--server", valkey_program()],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed 1/1" in done.stdout


def test_what_happens_once_is_flaky(tmp_path: Path) -> None:
    """A failure that does not repeat is reported as flaky. [PUSH-1]"""
    left = [None] * 3

    def sometimes(words: Sequence[bytes]) -> Sequence[bytes]:
        if left:
            left.pop()
            return [b"RPUSH", *words[1:-1], b"{}"]
        return words

    result = explore(
        reference(["client/core"]),
        options(tmp_path, examples=10, shrinks=10),
        rewrites=[Rule(Rewrite(sometimes), label="LPUSH", times=1 << 60)],
    )
    assert result.failure is not None
    assert result.failed == 0
    assert result.as_data()["found"]["flaky"] is True
    assert result.path is not None
    assert "flaky, failed in 0/5" in cases.load_file(result.path).title


def test_an_adapter_that_breaks_the_rules_ends_it(tmp_path: Path) -> None:
    (tmp_path / "driver.py").write_text("raise SystemExit(7)\n")
    path = tmp_path / "conformance.toml"
    path.write_text(
        '[implementation]\nname = "broken"\nclaims = ["client/core"]\n'
        f'[driver]\ncommand = ["{sys.executable}", "driver.py"]\n'
    )
    with pytest.raises(AdapterFault, match="exit status 7"):
        explored(config.load(path), tmp_path / "out")


def test_two_implementations_are_compared(tmp_path: Path) -> None:
    """Differences are not failures: generations write times differently. [GEN-1] [GEN-2]"""
    result = explore(
        reference(["client/core"]),
        options(tmp_path, examples=4),
        other=replace(reference(["client/core"]), generation="7.3"),
    )
    assert result.failure is None
    forms = {(each.one, each.other) for each in result.differences}
    assert forms == {("a integer", "a float")}
    assert all("_at' of" in each.what for each in result.differences)
    same = explore(
        reference(["client/core"]), options(tmp_path, examples=4), other=reference(["client/core"])
    )
    assert [each.what for each in same.differences] == []
