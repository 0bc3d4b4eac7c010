"""Portable cases: their export, and a runner of a hundred lines that needs no suite."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from harness.servers import Server
from jobwire_conformance import data
from jobwire_conformance.cases import case as cases
from jobwire_conformance.cases.portable import NotPortable, portable
from tests.conformance.skeletons import needs
from tests.conformance.suite import ROOT
from tests.workers import jobwire

pytestmark = pytest.mark.process

EXAMPLE = ROOT / "examples" / "portable-cases"
CLAIMS = ("client/core", "client/bulk", "client/scheduled")


def exported(generation: str = data.DEFAULT_GENERATION) -> list[dict[str, object]]:
    found = []
    for case in cases.load():
        try:
            found.append(portable(case, generation))
        except NotPortable:
            continue
    return found


@pytest.mark.parametrize("generation", data.GENERATIONS)
def test_every_exported_case_fits_its_schema(generation: str) -> None:
    validator = Draft202012Validator(data.schema("portable-case"))
    written = exported(generation)
    assert len(written) >= 35
    for each in written:
        assert not [*validator.iter_errors(each)], each["case"]


def test_the_schema_has_at_most_a_dozen_matchers() -> None:
    matchers = data.schema("portable-case")["$defs"]["matcher"]["anyOf"]
    assert len(matchers) <= 12
    used = set(re.findall(r'"\$": "([a-z]+)"', json.dumps(exported())))
    assert used - {"now"} == {each["properties"]["$"]["const"] for each in matchers[1:]}


def test_times_have_the_unit_of_the_generation() -> None:
    (case,) = (case for case in cases.load() if case.name == "push-fields")
    units = {
        generation: re.findall(r'"unit": "([ms]+)"', json.dumps(portable(case, generation)))
        for generation in ("7.3", "8.1")
    }
    assert set(units["7.3"]) == {"s"}
    assert set(units["8.1"]) == {"ms"}


@pytest.mark.parametrize("name", ["reliable-crash", "push-again", "beat-process"])
def test_a_case_that_needs_the_suite_is_not_portable(name: str) -> None:
    (case,) = (case for case in cases.load() if case.name == name)
    with pytest.raises(NotPortable):
        portable(case)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Export the cases of the claims."""
    said = jobwire("conform", "export", str(tmp_path / "cases"), *CLAIMS)
    assert said.returncode == 0, said.stderr
    assert re.fullmatch(r"\d+ of \d+ cases written to .+\n", said.stdout)
    return tmp_path / "cases"


class TestRunner:
    """The example in Python."""

    @staticmethod
    def run(example: Path, directory: Path, url: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(example / "run.py"), str(directory), url],
            env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
            capture_output=True,
            text=True,
            check=False,
        )

    @pytest.mark.process
    def test_the_client_passes(self, directory: Path, server: Server) -> None:
        done = self.run(EXAMPLE, directory, server.url)
        assert done.returncode == 0, done.stdout + done.stderr
        assert int(done.stdout.split()[0]) >= 20

    @pytest.mark.process
    def test_a_wrong_client_is_found(self, directory: Path, server: Server, tmp_path: Path) -> None:
        wrong = tmp_path / "wrong"
        wrong.mkdir()
        (wrong / "run.py").write_text((EXAMPLE / "run.py").read_text())
        port = (EXAMPLE / "port.py").read_text()
        changed = port.replace("client.push(name, args,", 'client.push(f"{name}X", args,')
        assert changed != port
        (wrong / "port.py").write_text(changed)
        done = self.run(wrong, directory, server.url)
        assert done.returncode == 1
        assert re.search(r"^push-plain#[A-Z]+-\d+: \['LINDEX', .+ expected ", done.stdout, re.M)

    @pytest.mark.process
    def test_no_case_is_a_failure(self, tmp_path: Path, server: Server) -> None:
        assert self.run(EXAMPLE, tmp_path, server.url).returncode == 1

    def test_it_stays_short(self) -> None:
        lines = (EXAMPLE / "run.py").read_text().splitlines()
        assert len([line for line in lines if line.strip()]) <= 100


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("mistake", "failing"),
    [
        ("", set()),
        ("space-after-comma", {"push-plain"}),
        ("escapes-slash", {"push-escapes"}),
        ("writes-101-levels", {"push-depth"}),
    ],
)
def test_the_runner_in_go(directory: Path, server: Server, mistake: str, failing: set[str]) -> None:
    """It is a part of the sample's own tests, and finds the sample's own mistakes."""
    needs("go")
    done = subprocess.run(
        ["go", "test", "-count=1", "-v", "./cmd/driver"],
        cwd=ROOT / "conformance" / "drivers" / "go-sample",
        env={
            **os.environ,
            "JOBWIRE_CASES": str(directory),
            "JOBWIRE_REDIS_URL": server.url,
            "JOBWIRE_MISTAKE": mistake,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    told = re.findall(r"^    --- (PASS|FAIL): TestCases/(\S+)", done.stdout, re.M)
    assert len(told) >= 40, done.stdout + done.stderr
    failed = {name for verdict, name in told if verdict == "FAIL"}
    assert failing <= failed
    assert bool(failing) == bool(failed) == bool(done.returncode)


@pytest.mark.process
def test_an_unknown_claim_is_refused(tmp_path: Path) -> None:
    said = jobwire("conform", "export", str(tmp_path), "client/cor")
    assert said.returncode == 64
    assert "unknown claim 'client/cor'" in said.stderr
