"""docs/reference/behaviours.md: the page lists every behaviour once, and all names exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from jobwire import App, Client, JobType
from jobwire.settings import SETTINGS
from tests.rows import over
from tests.unit.test_docs import DOCS, read, rows
from tools.markdown import ROOT

PACKAGE = ROOT / "python" / "jobwire"
TESTS = ROOT / "python" / "tests"
FLAGS = {
    "-C",
    *(part for each in SETTINGS.values() for flag in each.flags for part in flag.split("/")),
}
OBJECTS = {"App": App(), "Client": Client, "JobType": JobType}
LIST = read(DOCS / "reference" / "behaviours.md").partition("\n## ")[2]  # without the introduction
REASON = re.compile(r"(?:later|advice): \S.{10,}")
CODE = re.compile(r"`([^`]+)`")


@cache
def defined_in(path: Path) -> set[str]:
    """Return the tests that a file defines."""
    tree = ast.parse(read(path))
    return {
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test")
    }


def ids(cell: str) -> list[str]:
    """Return the ids of a row: one id or a range."""
    first, _, last = cell.partition("-")
    return [f"S{number:03}" for number in range(int(first[1:]), int((last or first)[1:]) + 1)]


def exists(name: str) -> bool:
    """True if the place that a row names exists."""
    if name.startswith("-"):
        return name in FLAGS
    owner, _, member = name.partition(".")
    if owner in OBJECTS:
        return hasattr(OBJECTS[owner], member)
    return any((place / name).exists() for place in (PACKAGE, DOCS, ROOT))


def faults(row: list[str]) -> list[str]:
    """Return the faults of a row."""
    _, behaviour, places, shown = row
    wrong = [] if behaviour and places else ["says too little"]
    wrong += [f"no {name}" for name in CODE.findall(places) if not exists(name)]
    if CODE.sub("", places).strip():
        wrong.append(f"no place: {places}")
    named = [name.split("::") for name in CODE.findall(shown) if "::" in name]
    for path, test in named:
        if not (TESTS / path).is_file() or test not in defined_in(TESTS / path):
            wrong.append(f"no {path}::{test}")
    if not named and REASON.fullmatch(shown) is None:
        wrong.append("neither test nor reason")
    return wrong


def test_every_behaviour_is_there_once() -> None:
    listed = [each for row in rows(LIST, 4) for each in ids(row[0])]
    assert listed == [f"S{number:03}" for number in range(1, 177)]


@pytest.mark.process
@over("row", rows(LIST, 4), ids=lambda row: row[0])
def test_what_a_row_names_is_there(row: list[str]) -> None:
    assert faults(row) == []
