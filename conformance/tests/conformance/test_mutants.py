"""Planted mistakes are found, and `trace --strict` names checks that would find none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from harness.servers import valkey_program
from jobwire_conformance import config, data
from jobwire_conformance.cases import case as cases
from jobwire_conformance.errors import SuiteFault
from jobwire_conformance.mutation import kills, mutants
from jobwire_conformance.mutation.mutants import Mutant
from jobwire_conformance.reports import audit
from jobwire_conformance.reports.kills import closing, markdown
from tests.conformance.suite import REFERENCE, ROOT, run

pytestmark = [pytest.mark.matrix, pytest.mark.usefixtures("own_python")]


# In two parts, so that they are not citations of unknown ids.
NOBODY, KNOWN, OLD = ("-".join(("ZZZ", number)) for number in "123")


# -- the mutants


def test_a_name_is_unique_in_all_areas(tmp_path: Path) -> None:
    for area in ("client", "worker"):
        mutant: dict[str, Any] = {
            "mutant": "same",
            "kills": ["PUSH-1"],
            "cases": ["push-head"],
            "signals": {"INT": ""},
        }
        (tmp_path / f"{area}.json").write_text(json.dumps([mutant]))
    with pytest.raises(SuiteFault, match="two mutants have the name same; rename the newer one"):
        mutants.load(tmp_path)
    for area in ("client", "worker"):
        (tmp_path / f"{area}.json").write_text('[{"case": "same"}]')
    with pytest.raises(SuiteFault, match=r"worker\.json: two cases same; rename the newer one"):
        cases.load(tmp_path)


def killed(chosen: list[Mutant], sandboxes: int) -> kills.Table:
    table = kills.kill(
        config.load(REFERENCE),
        chosen,
        cases.load(),
        patience=5,
        program=valkey_program(),
        sandboxes=sandboxes,
        controlled=len(chosen) > 1,
    )
    problems = Draft202012Validator(data.schema("kills")).iter_errors(table)
    assert [problem.message for problem in problems] == []
    return table


def test_a_mistake_that_no_check_notices_survives(tmp_path: Path) -> None:
    path = tmp_path / "harmless.json"
    about = {"mutant": "harmless", "kills": ["PUSH-1"], "cases": ["push-head"]}
    match = {"cmd": "SADD", "key": "queues"}
    path.write_text(json.dumps([{**about, "match": match, "rewrite": {"cmd": "sadd"}}]))
    table = killed(mutants.load_file(path), 1)
    assert table["mutants"] == [
        {"mutant": "harmless", "requirement": "PUSH-1", "fate": "survived", "by": []}
    ]
    assert "0 of 1 mutants are killed" in closing(table)
    assert "- `harmless` for PUSH-1: survived" in markdown(table)
    match = {"cmd": "ZADD", "key": "schedule"}
    path.write_text(json.dumps([{**about, "match": match, "rewrite": {"cmd": "PING"}}]))
    assert [each["fate"] for each in killed(mutants.load_file(path), 1)["mutants"]] == ["untouched"]


def test_the_mutants_name_cases_that_are_there() -> None:
    names = {case.name: case.requirements for case in cases.load()}
    for mutant in mutants.load():
        checked = {each for name in mutant.cases for each in names[name]}
        assert set(mutant.kills) <= checked, mutant.name


def test_every_obligation_that_can_be_seen_has_a_mutant() -> None:
    broken = {id_ for mutant in mutants.load() for id_ in mutant.kills}
    assert [id_ for id_ in kills.obligations([]) if id_ not in broken] == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kills": [NOBODY]}, f"SPEC.md has no requirement {NOBODY}"),
        ({"kills": []}, "kills"),
        ({"rewrit": {}}, "rewrit"),
        ({"rewrite": {"replace": ["(", ""]}}, "planted.json: "),
        ({"rewrite": {"body": ["RPOP", "LPOP"]}}, "does not match 'RPOP'"),
        (
            {"match": {"script": "fetch"}, "rewrite": {"body": ["no such text", ""]}},
            "lua/fetch.lua",
        ),
        ({"reply": {"replace": ["a", "b"]}}, "planted.json: "),
    ],
)
def test_a_mistake_in_a_mutant_is_named(
    change: dict[str, object], says: str, tmp_path: Path
) -> None:
    path = tmp_path / "planted.json"
    good: dict[str, object] = {"mutant": "planted", "kills": ["PUSH-1"], "cases": ["push-head"]}
    good |= {"match": {"cmd": "LPUSH"}, "rewrite": {"cmd": "RPUSH"}}
    path.write_text(json.dumps([good]))
    assert [mutant.kills for mutant in mutants.load_file(path)] == [("PUSH-1",)]
    path.write_text(json.dumps([{**good, **change}]))
    with pytest.raises(SuiteFault, match=says.replace("(", r"\(")):
        mutants.load_file(path)


# -- trace --strict


class Checkout:
    """A small checkout without faults, in which tests plant faults."""

    def __init__(self, root: Path) -> None:
        self.root = root
        about: dict[str, Any] = {
            "claims": ["client/core"],
            "level": "interop",
            "generations": ["6.4", "7.3", "8.1"],
            "since": "1.0",
            "text": "A client **MUST** x.",
        }
        about |= {"keyword": "MUST", "retired": None, "test": {"kind": "wire", "reason": None}}
        self.requirements = [
            {"id": KNOWN, **about},
            {"id": OLD, **about, "retired": "1.1"},
        ]
        self.case: dict[str, Any] = {"case": "push", "steps": [{"check": KNOWN}]}
        self.mutant: dict[str, Any] = {"mutant": "wrong", "kills": [KNOWN]}
        self.check = {"case": "push", "requirement": KNOWN, "status": "pass"}
        kill = {"mutant": "wrong", "requirement": KNOWN}
        self.kill: dict[str, Any] = {**kill, "fate": "killed", "by": ["push"]}

    def write(self) -> None:
        summary = json.loads((ROOT / "conformance/reports/jobwire/0.1.0.json").read_bytes())
        summary["claims"]["client/core"]["set"] = "0" * 12  # so that no other check passes
        check = f"{self.check['case']}#{self.check['requirement']}"
        group = {"status": self.check["status"], "checks": {"client/core": [check]}}
        summary |= {"claims": {"client/core": summary["claims"]["client/core"]}}
        summary["exceptions"] = [group]
        suite = self.root / "conformance"
        for path, found in {
            self.root / "schema" / "requirements.json": {"requirements": self.requirements},
            suite / "cases" / "client.json": [self.case],
            suite / "mutants" / "wrong.json": [self.mutant],
            suite / "reports" / "x" / "1.json": summary,
            self.root / audit.KILLS: {"kills": 1, "mutants": [self.kill]},
        }.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(found))


def plant_survivor(tree: Checkout) -> None:
    tree.kill |= {"fate": "survived", "by": [], "said": "blocked: x"}


def test_the_command_ends_as_it_found_things(tmp_path: Path) -> None:
    def said(*more: str) -> tuple[int, str, str]:
        done = run("trace", "--strict", *more, cwd=tmp_path)
        return done.status, done.out, done.err

    status, _, err = said()
    assert (status, "conformance does not exist; --strict needs a checkout" in err) == (64, True)
    tree = Checkout(tmp_path)
    tree.write()
    assert said() == (0, "", "2 requirements, 1 cases, 1 mutants, 1 runs: 0 faults\n")
    plant_survivor(tree)
    tree.write()
    status, out, _ = said(".")
    assert (status, out) == (1, f"mutant wrong: survived the checks of {KNOWN} (blocked: x)\n")
    (tmp_path / audit.KILLS).unlink()  # no run is kept in a new checkout
    assert said()[:2] == (0, "")
