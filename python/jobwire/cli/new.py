"""`jobwire new`: writes a small application."""

from __future__ import annotations

import re
from pathlib import Path

import click

__all__ = ["new"]

FILES = {
    "jobs.py": '''"""The jobs of {name}: `jobwire dev` runs them."""

from jobwire import App

app = App()


@app.job
def greet(name: str) -> None:
    """Run it: jobwire enqueue greet Ada"""
    print(f"Hello, {{name}}!")


@app.job(queue="mail", retry=5)
async def remind(name: str) -> None:
    """An async job: it waits without a thread."""
    print(f"Do you remember, {{name}}?")
''',
    "test_jobs.py": '''"""Tests without Redis: the fixture jobwire_fake collects jobs."""

import jobs
import pytest

from jobwire.testing import Jobs


def test_a_greeting_is_printed(jobwire_fake: Jobs, capsys: pytest.CaptureFixture[str]) -> None:
    jobs.greet.enqueue("Ada")
    jobwire_fake.drain()
    assert capsys.readouterr().out == "Hello, Ada!\\n"
''',
    "pyproject.toml": """[project]
name = "{name}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["jobwire"]

[project.optional-dependencies]
dev = ["jobwire[dev,web]", "mypy", "pytest"]

[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[tool.hatch.build.targets.wheel]
only-include = ["jobs.py"]  # and each module or package that you add

[tool.jobwire]
app = "jobs:app"

[tool.pytest.ini_options]
jobwire_app = "jobs:app"
pythonpath = ["."]
""",
    ".gitignore": ".jobwire/\n__pycache__/\n",
}
# The name of a project, also for pip, which must not take it for jobwire itself.
_NAME = re.compile(r"(?!jobwire$)[A-Za-z0-9]([A-Za-z0-9_-]*[A-Za-z0-9])?")


@click.command()
@click.argument("name")
def new(name: str) -> int:
    """Write a small application into the new directory NAME.

    It runs at once: `jobwire dev` in the directory starts a server and a worker.
    """
    directory = Path(name)
    if not _NAME.fullmatch(directory.name):
        raise click.UsageError(f"{name!r} is not a name of letters, digits, - and _; write my-jobs")
    try:
        directory.mkdir(parents=True)
    except FileExistsError:
        raise click.UsageError(f"{name!r} exists; choose another name, or remove it") from None
    except OSError as error:
        raise click.UsageError(f"cannot make {name!r}: {error.strerror}") from None
    for file, text in FILES.items():
        (directory / file).write_text(text.format(name=directory.name), encoding="utf-8")
    click.echo(f"{name}: {', '.join(FILES)}\n\n  cd {name}\n  jobwire dev\n")
    click.echo("and in a second terminal, in the same directory:\n\n  jobwire enqueue greet Ada\n")
    click.echo("To test it:\n\n  pip install -e '.[dev]'\n  pytest")
    return 0
