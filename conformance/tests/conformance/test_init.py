"""`jobwire conform init`: the files that it writes, and its questions."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from jobwire_conformance import config
from jobwire_conformance.data import CLAIMS
from jobwire_conformance.errors import Usage
from jobwire_conformance.setup import init
from tests.conformance.skeletons import made

pytestmark = pytest.mark.process

ROOT = Path(__file__).resolve().parents[3]


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jobwire", "conform", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}/python:{ROOT}/conformance"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize("language", init.LANGUAGES)
def test_the_settings_are_what_the_suite_reads(language: str, tmp_path: Path) -> None:
    settings = made(tmp_path, language, "client/core", "worker/retry")
    assert (settings.name, settings.language) == ('a "name"', language)
    assert settings.generation == "7.3"
    assert settings.claims == ("client/core", "worker/core", "worker/retry")
    text = (tmp_path / "conformance.toml").read_text()
    assert all(f'"{claim}",' in text for claim in CLAIMS)


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    kept = tmp_path / "jobwire-adapter" / "worker.sh"
    kept.parent.mkdir()
    kept.write_text("mine")
    done = command("init", tmp_path, "--language", "shell")
    assert (done.returncode, "worker.sh" in done.stderr) == (64, True)
    assert kept.read_text() == "mine"
    assert not (tmp_path / "conformance.toml").exists()
    with pytest.raises(Usage, match="overwritten"):
        made(tmp_path, "shell")


def test_the_language_is_guessed_or_asked_for(tmp_path: Path) -> None:
    done = command("init", tmp_path)
    assert (done.returncode, "--language" in done.stderr) == (64, True)
    (tmp_path / "Gemfile").write_text("")
    done = command("init", tmp_path, "--claim", "worker/core")
    assert (done.returncode, done.stderr) == (0, "")
    assert config.load(tmp_path).language == "ruby"
    assert "fill in `start` in jobwire-adapter/worker.rb" in done.stdout
    assert "jobwire conform check worker/core" in done.stdout


def test_for_another_language_there_are_the_contracts(tmp_path: Path) -> None:
    """A list of all variables and standard jobs, and commands to correct."""
    done = command("init", tmp_path, "--language", "other", "--claim", "client/core")
    assert (done.returncode, done.stderr) == (0, "")
    assert "write the driver, as jobwire-adapter/README.md says" in done.stdout
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


def test_the_projects_of_csharp_are_xml(tmp_path: Path) -> None:
    (tmp_path / "our.sln").write_text("")
    assert init.guess(tmp_path) == "csharp"
    made(tmp_path, "csharp")
    for name in ("jw-driver", "jw-worker"):
        project = ElementTree.parse(tmp_path / "jobwire-adapter" / name / f"{name}.csproj")
        assert project.getroot().get("Sdk") == "Microsoft.NET.Sdk"
        assert project.findtext("PropertyGroup/OutputPath") == "bin/"


@pytest.mark.parametrize(
    "arguments", [["--language", "cobol"], ["--claim", "client/cor"], ["--generation", "9"]]
)
def test_wrong_usage_writes_nothing(arguments: list[str], tmp_path: Path) -> None:
    assert command("init", tmp_path, *arguments).returncode == 64
    assert not [*tmp_path.iterdir()]


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
