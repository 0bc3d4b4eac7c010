"""Citations of requirements in a checkout: code, schemas, scripts, fixtures, tests and prose."""

from __future__ import annotations

import ast
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from jobwire_conformance.spec.document import AREAS, CITATION

__all__ = ["KINDS", "Citations", "cited", "named"]

Citations = dict[str, dict[str, list[str]]]
"""Id to kind to places. A place is a file, with `::` and a name if it is inside a definition."""

KINDS = ("code", "schema", "script", "fixture", "test", "prose")
# Unlike prose, these put every id into brackets, so an id of an unknown area is a mistake.
_BRACKETED = re.compile(r"\[((?:X-)?[A-Z]{2,5}-\d+)\]")
# Files made from the specification cite all of it.
_GENERATED = {
    *("schema/requirements.json", "schema/registry.json", "lua/README.md"),
}
_TESTS = ("python/tests", "conformance/tests")
# These tests check the text and the tools; an implementation that does nothing passes them.
_ABOUT_DOCUMENTS = (
    *("conformance/tests/spec/", "python/tests/unit/test_docs.py"),
    "python/tests/unit/test_site.py",
)


def cited(root: Path) -> Citations:
    """Return every citation in a checkout, sorted."""
    places: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for kind, place, identifier in _all(root):
        places[identifier][kind].add(place)
    return {
        identifier: {kind: sorted(by_kind[kind]) for kind in KINDS if kind in by_kind}
        for identifier, by_kind in sorted(places.items(), key=lambda item: _order(item[0]))
    }


def _all(root: Path) -> Iterator[tuple[str, str, str]]:
    for place, text in _files(root, "python/jobwire", "*.py"):
        for inner, identifier in _in_code(text):
            yield "code", f"{place}{inner}", identifier
    for place, text in _files(root, "schema", "*"):
        yield from (("schema", place, identifier) for identifier in _in_text(text))
    for place, text in _files(root, "lua", "*"):
        yield from (("script", place, identifier) for identifier in _in_text(text))
    for place, text in _files(root, "fixtures", "*.json"):
        for inner, identifier in _covers(json.loads(text)):
            yield "fixture", f"fixtures/{inner}" if inner else place, identifier
    for place, text in chain.from_iterable(_files(root, name, "*.py") for name in _TESTS):
        is_test = Path(place).name.startswith("test_")
        if is_test and not place.startswith(_ABOUT_DOCUMENTS):
            for inner, identifier in _in_test(text):
                yield "test", f"{place}{inner}", identifier
        elif not is_test:
            yield from (("prose", place, identifier) for identifier in CITATION.findall(text))
    for directory in ("docs", "examples", "conformance", "benchmarks"):
        for place, text in _files(root, directory, "*"):
            if not place.startswith(_TESTS):
                yield from (("prose", place, identifier) for identifier in CITATION.findall(text))
    for name in ("README.md", "CHANGELOG.md"):
        if (root / name).is_file():
            text = (root / name).read_text("utf-8")
            yield from (("prose", name, identifier) for identifier in CITATION.findall(text))


def _files(root: Path, directory: str, pattern: str) -> Iterator[tuple[str, str]]:
    for path in sorted((root / directory).rglob(pattern)):
        place = path.relative_to(root).as_posix()
        if not path.is_file() or path.suffix == ".pyc" or place in _GENERATED:
            continue
        try:
            yield place, path.read_text("utf-8")
        except UnicodeDecodeError:  # a picture
            continue


def _in_text(text: str) -> list[str]:
    return _BRACKETED.findall(text) + CITATION.findall(text)


def _in_code(source: str) -> Iterator[tuple[str, str]]:
    scopes = [*_scopes(ast.parse(source))][::-1]
    for number, line in enumerate(source.splitlines(), 1):
        for identifier in _in_text(line):
            yield _scope(scopes, number), identifier


def _in_test(source: str) -> Iterator[tuple[str, str]]:
    tree = ast.parse(source)
    scopes = [*_scopes(tree)][::-1]
    for number, text in named(tree):
        for identifier in CITATION.findall(text):
            yield _scope(scopes, number), identifier


def named(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of all places where a test module can cite an id.

    These are docstrings of tests, and string literals anywhere in code (tables of cases, `match=`).
    The docstring of a module and a comment do not count, because they do not show a test.
    """
    left_out: set[int] = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        is_test = getattr(node, "name", "").lower().startswith("test")
        if not is_test and node.body and isinstance(node.body[0], ast.Expr):
            left_out.add(id(node.body[0].value))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in left_out
        ):
            yield node.lineno, node.value


def _scopes(tree: ast.AST, prefix: str = "") -> Iterator[tuple[int, int, str]]:
    """Yield first line, last line and name of classes and functions, outer ones first."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{prefix}::{node.name}"
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            yield first, node.end_lineno or node.lineno, name
            if isinstance(node, ast.ClassDef):
                yield from _scopes(node, name)


def _scope(scopes: Iterable[tuple[int, int, str]], line: int) -> str:
    """Return the innermost name around a line, `""` for the module itself.

    `scopes` has inner ones first.
    """
    return next((name for first, last, name in scopes if first <= line <= last), "")


def _covers(value: Any) -> Iterator[tuple[str, str]]:
    """Yield file and id of every "covers" and "breaks" of a fixture, at any depth.

    The file is one that the index names, or `""` for the fixture itself.
    """
    if isinstance(value, dict):
        file = value.get("file", "")
        for key in ("covers", "breaks"):
            listed = value.get(key, [])
            if isinstance(listed, list):
                yield from ((file, identifier) for identifier in listed)
        for inner in value.values():
            yield from _covers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _covers(inner)


def _order(identifier: str) -> tuple[int, str, int]:
    area, _, number = identifier.rpartition("-")
    return (AREAS.index(area) if area in AREAS else len(AREAS), area, int(number))
