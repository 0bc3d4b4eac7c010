"""Imports go downwards only, and the core does no I/O."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import jobwire

PACKAGE = Path(jobwire.__file__).parent

# Every module, or the package that it is in, has to be placed here.
LAYERS: dict[int, set[str]] = {
    0: {"errors", "config"},
    1: {
        *("keys", "times", "arguments", "payload", "normalize", "ordering", "retry", "wire"),
        *("pushing", "reliable", "graves", "stats", "promotion", "beat", "producer", "server"),
        *("poison", "template"),
        *("chain", "current", "lifecycle", "propagation", "outlet"),
        *("metrics", "iteration", "iterabletype"),
    },
    2: {
        "_data",
        "_scripts",
        *("_connect", "_line", "_lines"),
        "_sync",
        "_async",
        "client",
        "aio",
        "app",
        "jobtype",
        "embedded",
        "iterables",
        "inspect",
    },
    3: {"bench", "settings", "spec", "testing", "worker"},
    4: {"cli", "pytest_plugin", "__main__"},
}
LAYER = {name: layer for layer, names in LAYERS.items() for name in names}
# The package's own module exports names of layers 0 to 2, so it is above those.
FRONT = 2
# In the core, time, randomness and replies are arguments.
IMPURE = {
    *("redis", "asyncio", "threading", "socket", "os", "time", "random", "secrets", "logging"),
    *("subprocess", "signal", "select", "selectors", "pathlib", "concurrent", "multiprocessing"),
}


def layer_of(path: Path) -> int | None:
    name = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return FRONT if name == "__init__" else LAYER.get(name)


def imports(source: str) -> set[str]:
    """Return every module that is imported, anywhere in the source."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            module = node.module or ""
            if module in ("jobwire", "jobwire.worker", "jobwire.cli"):
                found.update(f"{module}.{alias.name}" for alias in node.names)
            else:
                found.add(module)
    return found


def faults(source: str, layer: int) -> list[str]:
    """Return what a module of this layer must not import."""
    wrong = []
    for module in sorted(imports(source)):
        top, _, rest = module.partition(".")
        if top == "jobwire":
            target = LAYER.get(rest.partition(".")[0], FRONT)  # else a name of the front
            if target > layer or (layer == 0 and target == 0 and rest != "errors"):
                wrong.append(f"{module} is of layer {target}")
        elif layer <= 1 and top in IMPURE:
            wrong.append(f"{module} does I/O, tells time or throws dice")
    return wrong


MODULES = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_imports_downwards_only(path: Path) -> None:
    layer = layer_of(path)
    assert layer is not None, f"give {path.name} a layer in the table of this test"
    assert faults(path.read_text("utf-8"), layer) == []


def test_the_two_shells_do_not_know_each_other() -> None:
    for one, other in (("_sync", "_async"), ("_async", "_sync"), ("client", "aio")):
        assert f"jobwire.{other}" not in imports((PACKAGE / f"{one}.py").read_text("utf-8"))


def test_the_table_names_no_module_twice_or_in_vain() -> None:
    assert sum(map(len, LAYERS.values())) == len(LAYER)
    there = {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in MODULES}
    assert set(LAYER) - there == set()


@pytest.mark.parametrize(
    ("source", "layer"),
    [
        ("import time", 1),
        ("def f():\n    import random", 1),
        ("from os.path import join", 1),
        ("import redis.exceptions", 0),
        ("from jobwire.application.client import Client", 1),
        ("from jobwire import Client", 1),
        ("from jobwire import _sync", 1),
        ("import jobwire.worker.process.launcher", 2),
        ("from jobwire.cli.worker import worker", 3),
        ("from jobwire.protocol.keys import Keys", 0),
    ],
)
def test_planted_faults_are_found(source: str, layer: int) -> None:
    assert faults(source, layer) != []


@pytest.mark.parametrize(
    ("source", "layer"),
    [
        ("import datetime", 1),
        ("from jobwire import times", 1),
        ("from jobwire.errors import ConfigError", 0),
        ("import time\nimport redis\nfrom jobwire.protocol.keys import Keys", 2),
        ("import threading\nfrom jobwire import Client", 3),
        ("import click\nfrom jobwire.worker.process.launcher import Launcher", 4),
    ],
)
def test_lawful_imports_are_left_alone(source: str, layer: int) -> None:
    assert faults(source, layer) == []
