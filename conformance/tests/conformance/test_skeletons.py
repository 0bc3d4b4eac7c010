"""The skeletons of `jobwire conform init`, where their language exists: they run, and are alike."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from jsonschema import Draft202012Validator

from jobwire_conformance import config, data
from jobwire_conformance.data import CLAIMS
from jobwire_conformance.errors import Usage
from jobwire_conformance.setup import init
from tests.conformance.gaps import PYTHON_PUSH, PYTHON_START, SHELL_PUSH
from tests.conformance.skeletons import CRASHES, FILLED, build, fill, made, needs
from tests.conformance.suite import ROOT, run

pytestmark = pytest.mark.usefixtures("own_python")

REQUESTS = [
    {"id": 1, "op": "hello", "driver": 1, "redis_url": "redis://127.0.0.1:1/0"},
    {"id": 2, "op": "push", "job": {"class": "JobwireEcho", "args": [{"id": 9, "op": "bye"}, "é"]}},
    {"id": 3, "op": "inspect", "what": "queues"},
    {"id": 40, "op": "bye"},
]
RUNNING = [name for name in init.LANGUAGES if name != "other"]


def languages(names: Sequence[str]) -> list[Any]:
    """Return the languages as parameters; the gate tries one of them."""
    return [
        pytest.param(name, marks=pytest.mark.process if name == "python" else pytest.mark.matrix)
        for name in names
    ]


def talk(
    program: Sequence[str], directory: Path, requests: Sequence[dict[str, Any]]
) -> tuple[list[dict[str, Any]], str]:
    """Return the answers of a driver, and its standard error."""
    lines = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in requests)
    done = subprocess.run(
        program, cwd=directory, input=lines, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    schema = data.schema("driver")
    response = Draft202012Validator({"$ref": "#/$defs/response", "$defs": schema["$defs"]})
    for answer in answers:
        response.validate(answer)
    assert [answer["id"] for answer in answers] == [request["id"] for request in requests]
    return answers, done.stderr


@pytest.mark.parametrize("language", languages(RUNNING))
def test_it_runs_as_it_was_generated(language: str, tmp_path: Path) -> None:
    needs(language)
    settings = made(tmp_path, language)
    build(language, tmp_path)
    assert settings.driver is not None
    assert settings.worker is not None
    answers, errors = talk(settings.driver.command, tmp_path, REQUESTS)
    assert answers[0]["ok"] == {"driver": 1, "version": "0", "ops": ["push"]}
    assert answers[1:3] == [{"id": 2, "unsupported": True}, {"id": 3, "unsupported": True}]
    assert answers[3]["ok"] == {}
    assert "fill in" in errors
    done = subprocess.run(
        settings.worker.command, cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, "fill in" in done.stderr) == (1, True)


@pytest.mark.parametrize("language", languages(RUNNING))
def test_no_error_of_the_client_ends_the_driver(language: str, tmp_path: Path) -> None:
    """The answer is unknown, with the text of the error, and the next request is answered."""
    needs(language)
    settings = made(tmp_path, language)
    file, gap, code, says = CRASHES[language]
    fill(tmp_path / file, gap, code)
    build(language, tmp_path)
    assert settings.driver is not None
    push = {"op": "push", "job": {"class": "JobwireEcho", "args": [], "queue": None}}
    deep = {**push, "job": {"class": "JobwireEcho", "args": _nested(600), "queue": None}}
    requests = [REQUESTS[0], {"id": 2, **push}, {"id": 3, **deep}, REQUESTS[3]]
    answers, errors = talk(settings.driver.command, tmp_path, requests)
    assert answers[1]["error"]["kind"] == "unknown"
    assert says in answers[1]["error"]["message"]
    assert answers[2]["error"]["kind"] == "unknown"
    assert answers[3]["ok"] == {}
    if language != "shell":
        assert "none" in errors or "nil map" in errors


def _nested(levels: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(levels):
        nested = [nested]
    return nested


@pytest.mark.parametrize("language", languages([*FILLED]))
def test_filled_in_it_runs_its_jobs(language: str, tmp_path: Path) -> None:
    needs(language)
    made(tmp_path, language, "client/core", "worker/core")
    FILLED[language](tmp_path / "jobwire-adapter")
    build(language, tmp_path)
    in_order(tmp_path)


def test_shell_filled_in_pushes_and_starts_a_worker(tmp_path: Path) -> None:
    """Its jobs are in the language of the worker that the shell starts, here Python."""
    cli = shutil.which("redis-cli") or shutil.which("valkey-cli")
    if cli is None:
        pytest.skip("neither redis-cli nor valkey-cli is on PATH")
    made(tmp_path, "shell", "client/core", "worker/core")
    there, other = tmp_path / "jobwire-adapter", tmp_path / "other"
    gap = "  echo 'driver.sh: fill in `push`' >&2\n  return 64\n"
    fill(there / "driver.sh", gap, SHELL_PUSH.replace("CLI", cli))
    made(other, "python")
    worker = other / "jobwire-adapter" / "worker.py"
    fill(worker, "    raise NotFilledIn\n", PYTHON_START, PYTHON_PUSH)
    last = "echo 'worker.sh: fill in the line with `exec`' >&2\nexit 1\n"
    fill(there / "worker.sh", last, f"exec python3 {worker}\n")
    in_order(tmp_path)


@pytest.mark.process
@pytest.mark.parametrize("language", ["python", "javascript", "shell"])
def test_the_doctor_says_which_part_is_to_be_filled_in(language: str, tmp_path: Path) -> None:
    needs(language)
    settings = made(tmp_path, language, "client/core", "worker/core")
    assert settings.driver is not None
    assert settings.worker is not None
    status, report = diagnosis(tmp_path)
    bad = {what for what, item in report.items() if item["state"] == "bad"}
    assert (status, bad) == (3, {"driver pushes", "worker"})
    driver, worker = (Path(each.command[1]).name for each in (settings.driver, settings.worker))
    assert report["driver pushes"]["advice"].startswith("fill in `push`; ")
    assert f"{driver}: fill in `push`" in report["driver pushes"]["advice"]
    assert "exit status 1 before its first fetch" in report["worker"]["seen"]
    gap = "the line with `exec`" if language == "shell" else "`start`"
    assert f"{worker}: fill in {gap}" in report["worker"]["advice"]


def diagnosis(directory: Path) -> tuple[int, dict[str, dict[str, str]]]:
    """Return the exit status of `doctor`, and the result of each of its checks."""
    done = run("doctor", directory, "--patience", "30", "--json")
    return done.status, {item["what"]: item for item in json.loads(done.out)}


def in_order(directory: Path) -> None:
    """Check that the doctor finds no fault after it pushed and ran every job of a skeleton."""
    status, report = diagnosis(directory)
    assert {what: item for what, item in report.items() if item["state"] == "bad"} == {}
    assert status == 0
    jobs = [f"worker runs Jobwire{job}" for job in ("Echo", "Fail", "Flaky", "Gate", "Spawn")]
    for what in ("driver pushes", "driver uses JOBWIRE_REDIS_URL", *jobs):
        assert report[what]["state"] == "ok", report[what]


# -- `jobwire conform init`: the files that it writes, and its questions


@pytest.mark.process
@pytest.mark.parametrize("language", init.LANGUAGES)
def test_the_settings_are_what_the_suite_reads(language: str, tmp_path: Path) -> None:
    settings = made(tmp_path, language, "client/core", "worker/retry")
    assert (settings.name, settings.language) == ('a "name"', language)
    assert settings.generation == "7.3"
    assert settings.claims == ("client/core", "worker/core", "worker/retry")
    text = (tmp_path / "conformance.toml").read_text()
    assert all(f'"{claim}",' in text for claim in CLAIMS)


@pytest.mark.process
def test_nothing_is_overwritten(tmp_path: Path) -> None:
    kept = tmp_path / "jobwire-adapter" / "worker.sh"
    kept.parent.mkdir()
    kept.write_text("mine")
    done = run("init", tmp_path, "--language", "shell")
    assert (done.status, "worker.sh" in done.err) == (64, True)
    assert kept.read_text() == "mine"
    assert not (tmp_path / "conformance.toml").exists()
    with pytest.raises(Usage, match="overwritten"):
        made(tmp_path, "shell")


@pytest.mark.process
def test_the_language_is_guessed_or_asked_for(tmp_path: Path) -> None:
    done = run("init", tmp_path)
    assert (done.status, "--language" in done.err) == (64, True)
    (tmp_path / "Gemfile").write_text("")
    done = run("init", tmp_path, "--claim", "worker/core")
    assert (done.status, done.err) == (0, "")
    assert config.load(tmp_path).language == "ruby"
    assert "fill in `start` in jobwire-adapter/worker.rb" in done.out
    assert "jobwire conform check worker/core" in done.out


@pytest.mark.process
@pytest.mark.parametrize("language", ["other", "cobol"])
def test_for_another_language_there_are_the_contracts(language: str, tmp_path: Path) -> None:
    """A list of all variables and standard jobs, and commands to correct."""
    done = run("init", tmp_path, "--language", language, "--claim", "client/core")
    assert (done.status, done.err) == (0, "")
    assert ("there is no skeleton for cobol" in done.out) == (language == "cobol")
    assert config.load(tmp_path).language == language
    assert "write the driver, as jobwire-adapter/README.md says" in done.out
    settings = config.load(tmp_path)
    assert settings.driver is not None
    assert settings.driver.command == ["./jobwire-adapter/driver"]
    contracts = (tmp_path / "jobwire-adapter" / "README.md").read_text()
    how_to = (ROOT / "docs" / "how-to" / "conformance.md").read_text()
    own = {"JOBWIRE_SUITE", "JOBWIRE_MUTATE", "JOBWIRE_MISTAKE"}  # the suite's, not the contract's
    names = {*re.findall(r"JOBWIRE_[A-Z_]+", how_to)} - own
    assert {name for name in names if name not in contracts} == set()
    for job in ("Echo", "Fail", "Flaky", "Gate", "Spawn"):
        assert f"`Jobwire{job}`" in contracts


@pytest.mark.process
def test_the_projects_of_csharp_are_xml(tmp_path: Path) -> None:
    (tmp_path / "our.sln").write_text("")
    assert init.guess(tmp_path) == "csharp"
    made(tmp_path, "csharp")
    for name in ("jw-driver", "jw-worker"):
        project = ElementTree.parse(tmp_path / "jobwire-adapter" / name / f"{name}.csproj")
        assert project.getroot().get("Sdk") == "Microsoft.NET.Sdk"
        assert project.findtext("PropertyGroup/OutputPath") == "bin/"


@pytest.mark.process
@pytest.mark.parametrize("arguments", [["--claim", "client/cor"], ["--generation", "9"]])
def test_wrong_usage_writes_nothing(arguments: list[str], tmp_path: Path) -> None:
    assert run("init", tmp_path, *arguments).status == 64
    assert not [*tmp_path.iterdir()]


@pytest.mark.process
def test_on_a_terminal_it_asks(tmp_path: Path) -> None:
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "jobwire", "conform", "init", tmp_path],
        env={**os.environ, "PYTHONPATH": f"{ROOT}/python:{ROOT}/conformance"},
        stdin=child,
        stdout=child,
        stderr=child,
        start_new_session=True,
    )
    os.close(child)
    os.write(parent, b"my jobs\nshell\nclient/bulk\n7.3\n")
    shown = b""
    try:
        while more := os.read(parent, 4096):
            shown += more
    except OSError:
        pass  # a terminal ends a process in this way
    finally:
        os.close(parent)
    assert process.wait(60) == 0, shown
    settings = config.load(tmp_path)
    assert (settings.name, settings.language) == ("my jobs", "shell")
    assert settings.claims == ("client/core", "client/bulk")
    assert settings.generation == "7.3"
