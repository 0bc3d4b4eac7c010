"""Imports go downwards only: one rule for each folder."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import jobwire
import jobwire_conformance
from tests.rows import over

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs/internals.md").read_text("utf-8")
BASES = (ROOT / "python/jobwire", ROOT, ROOT / "conformance")
PATH = re.compile(r"`([\w./]+(?:/|\.py|\.lua|\.json))`")
# Files that the page names and a checkout does not have.
WRITTEN = {"results.json"}


def rooms(title: str) -> dict[str, str]:
    """Return the rooms of a table of the page, with the rooms that each may import.

    A room is a folder, or a module at the top of a package. "*" is everything above in the table;
    a folder may always import itself, `_version` and `text`.
    """
    section = TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {
        name.strip(" `"): "*"
        if "every room" in imports
        else " ".join(imports.split()).replace("`", "")
        for name, _, imports in rows
    }


PACKAGES = {
    "jobwire": (Path(jobwire.__file__).parent, rooms("Rooms of jobwire")),
    "jobwire_conformance": (
        Path(jobwire_conformance.__file__).parent,
        rooms("Rooms of the suite"),
    ),
}

# In the protocol, time, randomness and replies are arguments.
IMPURE = {
    *("asyncio", "threading", "socket", "os", "time", "random", "secrets", "logging"),
    *("subprocess", "signal", "select", "selectors", "pathlib", "concurrent", "multiprocessing"),
}


BOTTOM = {"_version", "text"}


def room(module: str, rules: dict[str, str]) -> str | None:
    """Return the room of a module, like `worker/fetch`; None for the package itself."""
    parts = module.split(".")[1:]
    for length in (2, 1):
        if "/".join(parts[:length]) in rules:
            return "/".join(parts[:length])
    return None


def allowed(name: str, rules: dict[str, str]) -> set[str]:
    names = rules[name].split()
    if names == ["*"]:
        above = list(rules)
        return set(above[: above.index(name)])
    return {name, *names, *(BOTTOM & set(rules))}


@cache
def imports(source: str) -> set[str]:
    """Return every module that is imported, anywhere in the source."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            base = node.module or ""
            for alias in node.names:
                full = f"{base}.{alias.name}"
                names.add(full if full in MODULES else base)
    return names


def faults(source: str, name: str, package: str = "jobwire") -> list[str]:
    """Return the imports that are forbidden for a module in this room."""
    rules = PACKAGES[package][1]
    wrong = []
    for module in sorted(imports(source)):
        top = module.partition(".")[0]
        if (name, module) == ("data", "jobwire_conformance.spec.record"):
            continue  # a checkout's requirements are made from its text
        if top == package:
            target = room(module, rules)
            if target is None:
                if package == "jobwire":  # the suite's front has its version, and imports nothing
                    wrong.append(f"{module} is the front of the package, which is above {name}")
            elif target != name and target not in allowed(name, rules):
                wrong.append(f"{name} must not import {module}")
        elif top == "jobwire" and package == "jobwire_conformance":
            wrong.append(f"{module}: the suite must not import the reference")
        elif top == "jobwire_conformance":
            wrong.append(f"{module}: the library must not import the suite")
        elif top == "redis":
            wrong.append(f"{module}: neither package needs redis-py, which takes 9 MiB")
        elif name in ("errors", "protocol") and top in IMPURE:
            wrong.append(f"{module} does I/O, tells time or draws random numbers")
    return wrong


def paths(package: str) -> list[Path]:
    base = PACKAGES[package][0]
    return sorted(path for path in base.rglob("*.py") if "skeletons" not in path.parts)


def module_name(package: str, path: Path) -> str:
    base = PACKAGES[package][0]
    parts = path.relative_to(base.parent).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


ALL = [(package, path) for package in PACKAGES for path in paths(package)]
MODULES = {module_name(package, path) for package, path in ALL}


@pytest.mark.process
@over(("package", "path"), ALL, ids=[module_name(package, path) for package, path in ALL])
def test_a_module_imports_downwards_only(package: str, path: Path) -> None:
    name = module_name(package, path)
    if name == package:
        return  # the package itself exports names of the rooms below
    place = room(name, PACKAGES[package][1])
    assert place is not None, f"give {name} a room in docs/internals.md"
    assert faults(path.read_text("utf-8"), place, package) == []


def test_only_drivers_beside_the_suite_import_the_library() -> None:
    base = PACKAGES["jobwire_conformance"][0]
    apart = {base, base.parent / "tests"}
    outside = {path for path in base.parent.rglob("*.py") if apart.isdisjoint(path.parents)}
    users = {
        path.relative_to(base.parent).parent.as_posix()
        for path in outside
        if any(name.partition(".")[0] == "jobwire" for name in imports(path.read_text("utf-8")))
    }
    assert users == {"drivers/python"}


@pytest.mark.process
def test_tests_of_the_library_do_not_test_the_suite() -> None:
    base = Path(__file__).parents[1]
    kinds = {"jobwire_conformance", "tests.conformance", "tests.schema", "tests.spec"}
    users = {
        path.name
        for folder in ("unit", "acceptance")
        for path in (base / folder).rglob("*.py")
        for name in imports(path.read_text("utf-8"))
        if any(f"{name}.".startswith(f"{kind}.") for kind in kinds)
    }
    assert users == {Path(__file__).name}


def test_the_test_harness_takes_only_servers_from_the_suite() -> None:
    """Both need servers that no run leaves behind, and neither package may import the other."""
    harness = Path(__file__).parents[2] / "harness"
    found = {name for path in harness.rglob("*.py") for name in imports(path.read_text("utf-8"))}
    found = {name for name in found if name.partition(".")[0] in PACKAGES}
    assert found == {f"jobwire_conformance.sandbox.{name}" for name in ("local_server", "reaper")}


@pytest.mark.parametrize("package", PACKAGES)
def test_the_rules_have_no_cycle(package: str) -> None:
    """A room is listed below every room that may import it."""
    rules = PACKAGES[package][1]
    order = list(rules)
    for name in rules:
        others = allowed(name, rules) - BOTTOM
        above = {other for other in others if order.index(other) > order.index(name)}
        assert above == set(), f"{name} is listed below {sorted(above)}"


def test_twins_do_not_know_each_other() -> None:
    base = PACKAGES["jobwire"][0]
    for one, other in (("sync", "aio"), ("aio", "sync")):
        source = (base / "connection" / f"{one}.py").read_text("utf-8")
        assert f"jobwire.connection.{other}" not in imports(source)
    client = (base / "application" / "client.py").read_text("utf-8")
    assert "jobwire.application.aio" not in imports(client)


@pytest.mark.parametrize("package", PACKAGES)
def test_the_tables_name_no_room_in_vain(package: str) -> None:
    base, rules = PACKAGES[package]
    for name in rules:
        assert (base / name).is_dir() or (base / f"{name}.py").is_file(), name


@pytest.mark.process
def test_modules_import_each_other_in_no_circle() -> None:
    """Imports for types also count, because a circle makes two modules one."""
    graph = {
        module_name(package, path): imports(path.read_text("utf-8")) & MODULES
        for package, path in ALL
    }
    graph = {name: targets - {name, *PACKAGES} for name, targets in graph.items()}
    while leaves := {name for name, targets in graph.items() if not targets & set(graph)}:
        graph = {name: targets for name, targets in graph.items() if name not in leaves}
    assert graph == {}, "these import each other in a circle, or are imported by one"


@over("path", sorted(set(PATH.findall(TEXT)) - WRITTEN))
def test_a_path_of_the_page_exists(path: str) -> None:
    assert any((base / path).exists() for base in BASES), path
