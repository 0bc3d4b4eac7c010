"""tests.flaky: the report about several runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.flaky import ROOT, Outcome, outcome_of, table

REPORT = """\
<testsuites><testsuite>
<testcase classname="a.b" name="one"/>
<testcase classname="a.b" name="two"><failure message="m">E  late</failure></testcase>
<testcase classname="a.b" name="three"><error message="m">E  gone</error></testcase>
<testcase classname="a.b" name="four"><skipped message="m"/></testcase>
</testsuite></testsuites>
"""


def test_a_report_names_what_failed(tmp_path: Path) -> None:
    path = tmp_path / "junit.xml"
    path.write_text(REPORT)
    outcome = outcome_of(path, 1, 2.0)
    assert outcome.failures == {"a.b::two": "E  late", "a.b::three": "E  gone"}
    assert str(outcome) == "4 tests, 2 failed, 2 s"
    assert str(outcome_of(tmp_path / "none.xml", 3, 2.0)) == "0 tests, exit status 3, 2 s"


def test_the_table_begins_with_the_worst() -> None:
    runs = [Outcome(1, 1.0, 9, {"a": "", "b": ""}), Outcome(1, 1.0, 9, {"b": ""})]
    assert table([*runs, Outcome(0, 1.0, 9, {})]) == ["  2 of 3  b", "  1 of 3  a"]


def flaky(*arguments: str) -> subprocess.CompletedProcess[str]:
    paths = f"{ROOT}/python:{ROOT}/conformance"
    return subprocess.run(
        [sys.executable, "-m", "tests.flaky", *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.matrix
def test_a_selection_can_be_run_and_what_fails_decides_the_status(tmp_path: Path) -> None:
    """The test fails in every second run, because each run leaves a file for the next."""
    test = tmp_path / "test_wavering.py"
    test.write_text(
        "from pathlib import Path\n"
        "def test_a():\n"
        "    path = Path(__file__).with_name('was')\n"
        "    if path.exists():\n"
        "        path.unlink()\n"
        "        raise AssertionError('again')\n"
        "    path.touch()\n"
    )
    # Outside of the conftest that registers the profile of `make test`.
    own = ("-p", "no:cacheprovider", "--hypothesis-profile", "default")
    alone = ("--busy", "1", "--", *own, "-n", "0", str(test))
    wavers = flaky("--runs", "2", *alone)
    assert wavers.returncode == 1, wavers.stderr
    assert "run 1 of 2: 1 tests, passed" in wavers.stdout
    assert "1 of 2  " in wavers.stdout
    passes = flaky("--runs", "1", *alone)
    assert passes.returncode == 0
    assert "every test passed" in passes.stdout


@pytest.mark.process
def test_wrong_usage_has_a_status_of_its_own() -> None:
    assert flaky("--runs", "0").returncode == 2
