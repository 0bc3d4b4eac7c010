"""`jobwire conform init`: what it writes works as it is, and asks for one thing."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from jobwire_conformance import config, data, init
from jobwire_conformance.data import CLAIMS
from jobwire_conformance.errors import Usage

ROOT = Path(__file__).resolve().parents[3]
INTERPRETERS = {"python": "python3", "ruby": "ruby", "javascript": "node", "shell": "sh"}
REQUESTS = [
    {"id": 1, "op": "hello", "driver": 1, "redis_url": "redis://127.0.0.1:1/0"},
    {"id": 2, "op": "push", "job": {"class": "JobwireEcho", "args": [{"id": 9, "op": "bye"}, "é"]}},
    {"id": 3, "op": "inspect", "what": "queues"},
    {"id": 40, "op": "bye"},
]


@pytest.fixture(autouse=True)
def _python(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `python3` in the adapters' commands be the one that runs the tests."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")


def made(directory: Path, language: str, *claims: str) -> config.Config:
    init.write(init.Wish(directory, 'a "name"', language, claims or ("client/core",), 7))
    return config.load(directory)


def command(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "jobwire", "conform", *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": f"{ROOT}/python:{ROOT}/conformance"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
    )


def talk(program: list[str], directory: Path) -> tuple[list[dict[str, object]], str]:
    """Return what a driver answers, and what it says besides."""
    lines = "".join(json.dumps(each, separators=(",", ":")) + "\n" for each in REQUESTS)
    done = subprocess.run(
        program, cwd=directory, input=lines, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def holds_out(answers: list[dict[str, object]], errors: str) -> None:
    """A driver as it was generated: greets, and says of the rest that it is not there."""
    schema = data.schema("driver")
    response = Draft202012Validator({"$ref": "#/$defs/response", "$defs": schema["$defs"]})
    for answer in answers:
        response.validate(answer)
    assert [answer["id"] for answer in answers] == [1, 2, 3, 40]
    assert answers[0]["ok"] == {"driver": 1, "version": "0", "ops": ["push"]}
    assert answers[1:3] == [{"id": 2, "unsupported": True}, {"id": 3, "unsupported": True}]
    assert answers[3]["ok"] == {}
    assert "fill in" in errors


def has_gap(program: list[str], directory: Path) -> None:
    done = subprocess.run(program, cwd=directory, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "fill in" in done.stderr


@pytest.mark.parametrize("language", init.LANGUAGES)
def test_the_settings_are_what_the_suite_reads(language: str, tmp_path: Path) -> None:
    settings = made(tmp_path, language, "client/core", "worker/retry")
    assert (settings.name, settings.language, settings.generation) == ('a "name"', language, 7)
    assert settings.claims == ("client/core", "worker/retry")
    text = (tmp_path / "jobwire.toml").read_text()
    assert all(f'"{claim}",' in text for claim in CLAIMS)


@pytest.mark.parametrize("language", INTERPRETERS)
def test_a_script_runs_as_it_was_generated(language: str, tmp_path: Path) -> None:
    if shutil.which(INTERPRETERS[language]) is None:
        pytest.skip(f"{INTERPRETERS[language]} is not on PATH")
    settings = made(tmp_path, language)
    assert settings.driver is not None
    assert settings.worker is not None
    holds_out(*talk([*settings.driver.command], tmp_path))
    has_gap([*settings.worker.command], tmp_path)


def test_go_runs_as_it_was_generated(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.skip("go is not on PATH")
    settings = made(tmp_path, "go")
    (tmp_path / "go.mod").write_text("module example.com/adapter\n")
    build(init.LANGUAGES["go"].build, tmp_path, GOFLAGS="-mod=mod", GOPROXY="off")
    assert settings.driver is not None
    assert settings.worker is not None
    holds_out(*talk([*settings.driver.command], tmp_path))
    has_gap([*settings.worker.command], tmp_path)


def test_rust_runs_as_it_was_generated(tmp_path: Path) -> None:
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not on PATH")
    settings = made(tmp_path, "rust")
    (tmp_path / "Cargo.toml").write_text(
        '[package]\nname = "adapter"\nversion = "0.1.0"\nedition = "2021"\n'
    )
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "lib.rs").write_text("")
    build(init.LANGUAGES["rust"].build, tmp_path, CARGO_NET_OFFLINE="true", RUSTFLAGS="-Dwarnings")
    assert settings.driver is not None
    assert settings.worker is not None
    holds_out(*talk([*settings.driver.command], tmp_path))
    has_gap([*settings.worker.command], tmp_path)


def build(line: str, directory: Path, **environment: str) -> None:
    done = subprocess.run(
        line,
        shell=True,
        cwd=directory,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    kept = tmp_path / "jobwire-adapter" / "worker.sh"
    kept.parent.mkdir()
    kept.write_text("mine")
    done = command("init", tmp_path, "--language", "shell")
    assert (done.returncode, "worker.sh" in done.stderr) == (64, True)
    assert kept.read_text() == "mine"
    assert not (tmp_path / "jobwire.toml").exists()
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
    os.write(parent, b"my jobs\nshell\nclient/bulk\n7\n")
    shown = b""
    try:
        while more := os.read(parent, 4096):
            shown += more
    except OSError:
        pass  # that is how a terminal ends
    finally:
        os.close(parent)
    assert process.wait(60) == 0, shown
    settings = config.load(tmp_path)
    assert (settings.name, settings.language) == ("my jobs", "shell")
    assert (settings.claims, settings.generation) == (("client/bulk",), 7)
