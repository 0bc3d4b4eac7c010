"""The action for continuous integration: its syntax, and the effects of its steps."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from jobwire_conformance import data

pytestmark = pytest.mark.matrix

ROOT = Path(__file__).resolve().parents[3]
ACTION = ROOT / "packaging" / "action" / "action.yml"
DRIVER = ROOT / "conformance" / "drivers" / "python" / "driver.py"


@pytest.fixture(scope="module")
def action() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load(ACTION.read_text("utf-8"))
    return loaded


class Job:
    """The parts of a CI job that composite actions see."""

    def __init__(self, action: dict[str, Any], directory: Path, **given: str) -> None:
        self._action = action
        self._inputs = {name: each["default"] for name, each in action["inputs"].items()} | given
        self._directory = directory
        self._files = {name: directory / name for name in ("PATH", "OUTPUT", "STEP_SUMMARY")}
        for path in self._files.values():
            path.write_text("")
        self._temporary = directory / "temporary"
        self._temporary.mkdir()

    def run(self) -> tuple[int, str]:
        """Run the commands of the steps until one fails; return its status and all output."""
        shown = ""
        for step in self._action["runs"]["steps"]:
            if "run" in step:
                status, text = self._step(step)
                shown += text
                if status:
                    return status, shown
        return 0, shown

    def file(self, name: str) -> str:
        return self._files[name].read_text()

    def _step(self, step: dict[str, Any]) -> tuple[int, str]:
        added = self._files["PATH"].read_text().splitlines()
        environment = {
            **os.environ,
            **{name: self._put_in(value) for name, value in step.get("env", {}).items()},
            **{f"GITHUB_{name}": str(path) for name, path in self._files.items()},
            "RUNNER_TEMP": str(self._temporary),
            "GITHUB_ACTION_PATH": str(self._directory / "checkout" / "packaging" / "action"),
            "PATH": os.pathsep.join([*reversed(added), os.environ["PATH"]]),
        }
        # A runner calls a shell like this.
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
            cwd=self._directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout

    def _put_in(self, value: str) -> str:
        return re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda found: self._inputs[found[1]], value)


def with_client(directory: Path, driver: Path = DRIVER) -> None:
    (directory / "conformance.toml").write_text(
        '[implementation]\nname = "sample"\nclaims = ["client/core", "client/scheduled"]\n'
        f'[driver]\ncommand = ["{sys.executable}", "{driver}"]\n'
    )


@pytest.fixture
def _jobwire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a `jobwire` of this checkout on PATH."""
    program = tmp_path / "bin" / "jobwire"
    program.parent.mkdir()
    program.write_text(
        f"#!/bin/sh\nPYTHONPATH='{ROOT}/python:{ROOT}/conformance' "
        f"exec '{sys.executable}' -m jobwire \"$@\"\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


def test_it_is_a_composite_action(action: dict[str, Any]) -> None:
    assert action["runs"]["using"] == "composite"
    assert {"name", "description", "inputs", "outputs", "runs"} == set(action)
    for step in action["runs"]["steps"]:
        # Every command of a composite action has to name its shell.
        assert ("uses" in step) != ("run" in step)
        assert "shell" in step or "uses" in step
        # Inputs are passed in the environment, because in the text of a command they would be code.
        assert "${{" not in step.get("run", "")
    names = {"config", "spec", "claims", "sandboxes", "report", "package", "python"}
    assert set(action["inputs"]) == names
    used = set(re.findall(r"inputs\.(\w+)", ACTION.read_text("utf-8")))
    assert used == names


@pytest.mark.usefixtures("_jobwire")
def test_its_steps_check_the_claims(action: dict[str, Any], tmp_path: Path) -> None:
    with_client(tmp_path)
    job = Job(action, tmp_path, package="", claims="client/scheduled", spec=data.spec_version())
    status, shown = job.run()
    assert (status, job.file("OUTPUT")) == (0, "status=0\n"), shown
    results = json.loads((tmp_path / "jobwire-report" / "results.json").read_text())
    assert results["claims"]["client/scheduled"]["met"] is True
    assert "client/scheduled" in job.file("STEP_SUMMARY")


@pytest.mark.usefixtures("_jobwire")
def test_its_status_is_that_of_the_check(action: dict[str, Any], tmp_path: Path) -> None:
    driver = tmp_path / "driver.py"
    driver.write_text("raise SystemExit(7)")
    with_client(tmp_path, driver)
    job = Job(action, tmp_path, package="", claims="client/core")
    status, shown = job.run()
    assert (status, job.file("OUTPUT")) == (3, "status=3\n"), shown
    job = Job(action, tmp_path / "temporary", package="", config="nowhere.toml")
    assert job.run()[0] == 64


def test_it_installs_into_an_environment_of_its_own(action: dict[str, Any], tmp_path: Path) -> None:
    """A small package replaces jobwire, whose dependencies would need the network."""
    (tmp_path / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "back"\nbackend-path = ["."]\n'
        '[project]\nname = "standin"\nversion = "1"\n'
    )
    (tmp_path / "back.py").write_text(_BACKEND)
    (tmp_path / "conformance.toml").write_text("")
    job = Job(action, tmp_path, package=str(tmp_path), python=sys.executable, claims="a b")
    status, shown = job.run()
    assert (status, job.file("OUTPUT")) == (0, "status=0\n"), shown
    arguments = "conform check --config conformance.toml --sandboxes 2 --report jobwire-report a b"
    assert shown.splitlines()[-1] == arguments


def test_it_installs_the_checkout_that_it_belongs_to(
    action: dict[str, Any], tmp_path: Path
) -> None:
    """Both packages of the checkout, without an index."""
    checkout = tmp_path / "checkout"
    for directory, name, extras in (
        (checkout, "standin", "[project.optional-dependencies]\nembedded = []\n"),
        (checkout / "conformance", "suite", ""),
    ):
        directory.mkdir()
        (directory / "pyproject.toml").write_text(
            '[build-system]\nrequires = []\nbuild-backend = "back"\nbackend-path = ["."]\n'
            f'[project]\nname = "{name}"\nversion = "1"\n{extras}'
        )
        (directory / "back.py").write_text(_BACKEND.replace("standin", name))
    (checkout / "packaging" / "action").mkdir(parents=True)
    (tmp_path / "conformance.toml").write_text("")
    job = Job(action, tmp_path, python=sys.executable)
    status, shown = job.run()
    assert (status, job.file("OUTPUT")) == (0, "status=0\n"), shown
    installed = tmp_path / "temporary" / "jobwire" / "lib"
    assert {path.name for path in installed.rglob("*.dist-info")} >= {
        "standin-1.dist-info",
        "suite-1.dist-info",
    }


def test_the_container_has_all_that_the_packages_are_made_of(tmp_path: Path) -> None:
    """The files that it copies are enough to build both wheels."""
    text = (ROOT / "packaging" / "container" / "Containerfile").read_text()
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    for source in copied:
        path = ROOT / source
        if path.is_dir():
            shutil.copytree(path, tmp_path / source, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, tmp_path / source)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index"),
            *("--no-build-isolation", "--wheel-dir", "wheels", ".[embedded]", "./conformance"),
        ],
        cwd=tmp_path,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert "'.[embedded]' ./conformance" in text
    assert len([*(tmp_path / "wheels").glob("jobwire*.whl")]) == 2


# A minimal wheel: a command that prints its arguments.
_BACKEND = """
import zipfile

def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "standin-1-py3-none-any.whl"
    info = "standin-1.dist-info"
    with zipfile.ZipFile(f"{directory}/{name}", "w") as wheel:
        wheel.writestr("standin.py", "import sys\\ndef main(): print(*sys.argv[1:])\\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: standin\\nVersion: 1\\n")
        tag = "Root-Is-Purelib: true\\nTag: py3-none-any\\n"
        wheel.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\\n{tag}")
        wheel.writestr(f"{info}/entry_points.txt", "[console_scripts]\\njobwire = standin:main\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return name
"""
