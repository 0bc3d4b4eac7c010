"""docs/internals.md: its tables of rooms are the rules of the imports, and its paths exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rows import over
from tests.unit.test_layers import CONFORMANCE, JOBWIRE

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs/internals.md").read_text("utf-8")
BASES = (ROOT / "python/jobwire", ROOT, ROOT / "conformance")
PATH = re.compile(r"`([\w./]+(?:/|\.py|\.lua|\.json))`")
# Files that the page names and a checkout does not have.
WRITTEN = {"results.json"}


def rooms(title: str) -> dict[str, str]:
    """Return the rooms of a table with their imports, in the form of test_layers.py."""
    section = TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| `")]
    return {
        name.strip(" `"): "*"
        if "every room" in imports
        else " ".join(imports.split()).replace("`", "")
        for name, _, imports in rows
    }


@pytest.mark.parametrize(
    ("title", "rules"), [("Rooms of jobwire", JOBWIRE), ("Rooms of the suite", CONFORMANCE)]
)
def test_the_tables_say_what_the_rules_say(title: str, rules: dict[str, str]) -> None:
    assert list(rooms(title).items()) == list(rules.items())


@over("path", sorted(set(PATH.findall(TEXT)) - WRITTEN))
def test_a_path_of_the_page_exists(path: str) -> None:
    assert any((base / path).exists() for base in BASES), path
