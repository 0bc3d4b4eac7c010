"""docs/glossary.md: entries in order, one place each, and the named modules exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BASES = {
    "Words of the package": ROOT / "python/jobwire",
    "Words of the suite": ROOT / "conformance/jobwire_conformance",
}
TEXT = (ROOT / "docs/glossary.md").read_text("utf-8")
ENTRY = re.compile(r"^- \*\*(.+?)\*\*: (.+?) \(([^()]+)\)$")


def entries(title: str) -> list[tuple[str, list[str]]]:
    """Return the words of a section with their modules, in the order of the page."""
    section = TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]
    lines = re.sub(r"\n +", " ", section).strip().splitlines()
    matches = [ENTRY.fullmatch(line) for line in lines]
    assert [line for line, match in zip(lines, matches, strict=True) if match is None] == []
    return [(match[1], re.findall(r"`([^`]+)`", match[3])) for match in matches if match]


def is_there(base: Path, place: str) -> bool:
    """True if a place is a module or a room of the package, or a script of lua/."""
    if place.endswith(".lua"):
        return (ROOT / place).is_file()
    return (base / place).is_dir() or (base / f"{place}.py").is_file()


@pytest.mark.parametrize("title", BASES)
def test_the_words_are_in_order_and_their_modules_exist(title: str) -> None:
    words = entries(title)
    assert len(words) >= 20
    assert [word for word, _ in words] == sorted({word for word, _ in words})
    assert [word for word, places in words if not places] == []
    base = BASES[title]
    assert [place for _, places in words for place in places if not is_there(base, place)] == []
