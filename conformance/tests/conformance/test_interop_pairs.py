"""Clients and workers in pairs: the jobs that arrive, and the party at fault for the others."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.servers import valkey_program
from jobwire_conformance import config
from jobwire_conformance.cli import conform
from jobwire_conformance.config import Config
from jobwire_conformance.interop import report, run
from jobwire_conformance.interop.run import InteropResults

pytestmark = [pytest.mark.matrix, pytest.mark.usefixtures("own_python")]

ROOT = Path(__file__).resolve().parents[3]
DRIVERS = ROOT / "conformance" / "drivers"


def tried(*configs: Config) -> InteropResults:
    """Run these clients and workers in pairs."""
    return run.run(configs, sandboxes=2, patience=20, program=valkey_program())


def reference() -> Config:
    """Return the settings of the reference."""
    return config.load(DRIVERS / "python")


def altered(tmp_path: Path, name: str, old: str, new: str) -> Config:
    """Return the settings of the reference with a mistake in one of its programs."""
    directory = tmp_path / "adapter"
    shutil.copytree(DRIVERS / "python", directory)
    program = directory / name
    text = program.read_text("utf-8")
    assert text.count(old) == 1
    program.write_text(text.replace(old, new), "utf-8")
    return replace(config.load(directory), name="altered")


def test_the_reference_understands_itself() -> None:
    """Every job arrives unchanged; a failed one is retried. [PAY-5] [PAY-6] [RETRY-3]"""
    trial = tried(reference())
    (pair,), (handover,) = trial.pairs, trial.handovers
    assert pair.error is None
    assert {fate.status for fate in pair.fates} == {"intact"}
    assert handover.error is None
    assert handover.problems == []
    assert trial.status == 0
    assert trial.versions["jobwire"]


def test_a_client_that_changes_numbers_is_blamed_for_them(tmp_path: Path) -> None:
    """A language with one kind of number writes whole floats as integers. [PAY-6]"""
    driver = altered(
        tmp_path,
        "driver.py",
        "            request = json.loads(line)\n",
        "            request = json.loads(line, parse_float=lambda text: "
        "int(float(text)) if float(text).is_integer() else float(text))\n",
    )
    trial = tried(replace(driver, worker=None), reference())
    pair = next(pair for pair in trial.pairs if pair.client == "altered")
    fates = {fate.item.name: fate for fate in pair.fates}
    assert fates["whole floats"].status == "changed"
    assert fates["whole floats"].by == "client"
    assert fates["text beyond ASCII"].status == "intact"
    assert fates["scheduled"].status == "intact"
    assert trial.status == 1
    assert "whole floats: changed as a client" in report.text(trial)


def test_a_worker_that_changes_arguments_is_blamed_for_them(tmp_path: Path) -> None:
    """The payload is compared before the arguments that the job got. [EXEC-1]"""
    worker = altered(
        tmp_path,
        "worker.py",
        '    """Accept any arguments."""\n',
        '    """Accept any."""\n    args = json.loads(json.dumps(args), parse_int=float)\n',
    )
    trial = tried(replace(reference(), worker=None), replace(worker, driver=None))
    (pair,) = trial.pairs
    changed = {fate.item.name for fate in pair.bad}
    assert "small integers" in changed
    assert {fate.by for fate in pair.bad} == {"worker"}
    assert {fate.status for fate in pair.bad} == {"changed"}


def test_a_job_that_is_not_performed_is_lost(tmp_path: Path) -> None:
    """A client answers ok and writes to a key that no worker reads. [PUSH-1]"""
    driver = altered(
        tmp_path,
        "driver.py",
        '    job = dict(request["job"])\n',
        '    job = {**request["job"], "queue": "elsewhere"}\n',
    )
    trial = tried(replace(driver, worker=None), replace(reference(), driver=None))
    (pair,) = trial.pairs
    now = [fate for fate in pair.fates if not fate.item.later]
    assert {(fate.status, fate.by) for fate in now} == {("lost", "client")}
    # Jobs in the set schedule are found there, and promoted to the other queue.
    later = [fate for fate in pair.fates if fate.item.later]
    assert {(fate.status, fate.by) for fate in later} == {("lost", "worker")}


def test_an_adapter_that_fails_is_no_verdict_about_the_pair(tmp_path: Path) -> None:
    """The other pairs still run; the exit status blames the adapter."""
    broken = altered(
        tmp_path, "driver.py", "def main() -> None:\n", "def main() -> None:\n    1/0\n"
    )
    trial = tried(replace(broken, worker=None), reference())
    errors = {pair.client: pair.error for pair in trial.pairs}
    assert errors["jobwire"] is None
    assert "ZeroDivisionError" in (errors["altered"] or "")
    assert trial.status == 3


def test_the_command_prints_json_and_writes_a_page(tmp_path: Path) -> None:
    """The JSON holds all results; the page has a row for each client."""
    page = tmp_path / "page.md"
    words = ["interop", str(DRIVERS / "python"), "--json", "--markdown", str(page)]
    outcome = CliRunner().invoke(
        conform, [*words, "--server", valkey_program()], standalone_mode=False
    )
    assert outcome.return_value == 0
    shown = json.loads(outcome.stdout)
    assert [(pair["client"], pair["worker"]) for pair in shown["pairs"]] == [("jobwire", "jobwire")]
    assert all(job["status"] == "intact" for job in shown["pairs"][0]["jobs"])
    count = len(shown["pairs"][0]["jobs"])
    assert f"| jobwire | {count}/{count} |" in page.read_text("utf-8")


def test_what_is_not_tried_again_stays(tmp_path: Path) -> None:
    """One program runs with all others; the page keeps the stored results of the other pairs."""
    kept, page = tmp_path / "pairs.json", tmp_path / "page.md"
    options = ["--keep", str(kept), "--markdown", str(page), "--server", valkey_program()]
    words = ["interop", str(DRIVERS / "python"), *options]
    assert CliRunner().invoke(conform, words, standalone_mode=False).return_value == 0
    before = json.loads(kept.read_text("utf-8"))
    lost = {"status": "lost", "by": "worker", "expected": "a run", "seen": "none"}
    before["pairs"][0]["wrong"] = [{**lost, "payloads": before["payloads"][:1]}]
    kept.write_text(json.dumps(before), "utf-8")  # so that it differs from any new result

    shutil.copytree(DRIVERS / "python", tmp_path / "adapter")
    other = tmp_path / "adapter" / "conformance.toml"
    other.write_text(other.read_text("utf-8").replace('name = "jobwire"', 'name = "newcomer"'))
    words = [
        "interop",
        str(DRIVERS / "python"),
        str(other),
        "--only",
        "newcomer",
        "--sandboxes",
        "2",
    ]
    outcome = CliRunner().invoke(conform, [*words, *options], standalone_mode=False)
    assert outcome.return_value == 1  # for the lost job
    assert "jobwire pushes, jobwire performs" not in outcome.stderr
    after = json.loads(kept.read_text("utf-8"))
    assert after["pairs"][0] == before["pairs"][0]
    assert after["handovers"][0] == before["handovers"][0]
    names = ("jobwire", "newcomer")
    pairs = [(a, b) for a in names for b in names]
    assert [(each["client"], each["worker"]) for each in after["pairs"]] == pairs
    assert [(each["failing"], each["retrying"]) for each in after["handovers"]] == pairs
    count = len(before["payloads"])
    text = page.read_text("utf-8")
    assert f"| jobwire | {count - 1}/{count} | {count}/{count} |" in text
    assert f"| newcomer | {count}/{count} | {count}/{count} |" in text


def test_a_file_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    """The exit status is 64, before any pair runs."""
    kept = tmp_path / "pairs.json"
    kept.write_text('{"pairs": []}', "utf-8")
    words = ["interop", str(DRIVERS / "python"), "--keep", str(kept)]
    outcome = CliRunner().invoke(conform, words, standalone_mode=False)
    assert outcome.return_value == 64
    assert "is not a file of" in outcome.stderr
    assert kept.read_text("utf-8") == '{"pairs": []}'


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["python", "python"], "two files have the name jobwire"),
        (["php"], "so no program performs"),
        (["nowhere"], "does not exist"),
        (["python", "--only=php"], "--only php: no file has this name"),
    ],
)
def test_wrong_usage_is_said_in_one_message(words: list[str], message: str) -> None:
    """The exit status is 64; the message names the cure."""
    files = [word if word.startswith("--") else str(DRIVERS / word) for word in words]
    outcome = CliRunner().invoke(conform, ["interop", *files], standalone_mode=False)
    assert outcome.return_value == 64
    assert message in outcome.stderr
