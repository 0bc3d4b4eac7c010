"""`jobwire new` and `jobwire completion`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.workers import environment, jobwire


@pytest.fixture
def made(tmp_path: Path) -> Path:
    """The directory of a new application."""
    done = jobwire("new", "my-jobs", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "jobwire enqueue greet Ada" in done.stdout
    return tmp_path / "my-jobs"


def run(directory: Path, *words: str) -> str:
    done = subprocess.run(
        words,
        cwd=directory,
        env=environment(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_new_application_can_be_installed_and_passes_its_own_test(
    made: Path, tmp_path: Path
) -> None:
    run(tmp_path, sys.executable, "-m", "venv", "--without-pip", "venv")
    python = str(tmp_path / "venv" / "bin" / "python")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = run(tmp_path, python, "-c", where).strip()
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    # Without isolation, with the backend that is installed here: needs no network.
    offline = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet"]
    run(made, sys.executable, "-m", "pip", "--python", python, "install", *offline, ".")
    told = "import importlib.metadata as m, jobs; print(jobs.__file__, *m.requires('my-jobs'))"
    shown = run(tmp_path, python, "-c", told)
    assert shown.startswith(site)
    assert 'pytest; extra == "dev"' in shown.replace("'", '"')
    plugin = ["-p", "jobwire.pytest_plugin", "-p", "no:cacheprovider"]
    assert "1 passed" in run(made, python, "-m", "pytest", "-q", *plugin)
    assert "default,1 mail,1" in run(made, python, "-m", "jobwire", "config")


@pytest.mark.matrix
def test_a_new_application_is_typed(made: Path) -> None:
    run(made, sys.executable, "-m", "mypy", "--strict", f"--cache-dir={os.devnull}", ".")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("there", "exists; choose another name"),
        *((name, "is not a name") for name in ("a b", "..", "a-", "_a", "jobwire", "é")),
    ],
)
def test_a_name_that_cannot_be_used_is_refused(tmp_path: Path, name: str, says: str) -> None:
    (tmp_path / "there").mkdir()
    made = jobwire("new", name, cwd=tmp_path)
    assert made.returncode == 2
    assert says in made.stderr


@pytest.mark.parametrize(
    ("shell", "file", "asks"),
    [
        ("bash", "data/bash-completion/completions/jobwire", "_JOBWIRE_COMPLETE=bash_complete"),
        ("zsh", "data/zsh/site-functions/_jobwire", "_JOBWIRE_COMPLETE=zsh_complete"),
        ("fish", "config/fish/completions/jobwire.fish", "_JOBWIRE_COMPLETE=fish_complete"),
    ],
)
def test_completion_is_installed_by_one_command(
    tmp_path: Path, shell: str, file: str, asks: str
) -> None:
    places = {
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "SHELL": f"/bin/{shell}",
    }
    done = jobwire("completion", "install", cwd=tmp_path, **places)
    assert done.returncode == 0, done.stderr
    assert f"wrote {tmp_path / file}" in done.stdout
    assert asks in (tmp_path / file).read_text()
    assert asks in jobwire("completion", "show", cwd=tmp_path, **places).stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_commands_and_options(tmp_path: Path) -> None:
    (tmp_path / "script").write_text(jobwire("completion", "show", "bash").stdout)
    program = tmp_path / "jobwire"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m jobwire "$@"\n')
    program.chmod(0o755)

    def complete(*words: str) -> set[str]:
        line = " ".join(f"'{word}'" for word in words)
        done = subprocess.run(
            ["bash", "-c", f'. ./script; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; '
             '_jobwire_completion jobwire; printf "%s\\n" "${COMPREPLY[@]}"'],
            cwd=tmp_path,
            env=environment(PATH=f"{tmp_path}:/usr/bin:/bin"),
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        assert done.stderr == ""
        return set(done.stdout.split())

    (tmp_path / "shop.py").write_text(
        "from jobwire import App\napp = App()\nprint('x')\n@app.job\ndef greet(): ...\n"
    )
    assert complete("jobwire", "enqueue", "-r", "shop:app", "gr") == {"greet"}
    assert complete("jobwire", "wor") == {"worker"}
    assert {"install", "show"} <= complete("jobwire", "completion", "")
    assert "--concurrency" in complete("jobwire", "worker", "--con")


def test_an_unknown_shell_is_named() -> None:
    done = jobwire("completion", "install", SHELL="/bin/tcsh")
    assert done.returncode == 2
    assert "'tcsh' is not one of bash, zsh, fish" in done.stderr
