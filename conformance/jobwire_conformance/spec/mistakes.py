"""Section 26 of the specification: a copy of the frequent rows of docs/reference/traps.md."""

from __future__ import annotations

import re
from pathlib import Path

from jobwire_conformance.spec.document import parts

__all__ = ["PAGE", "outdated", "place", "updated"]

PAGE = "docs/reference/traps.md"

# A frequent trap has its number in bold. The last cell may end with a note, which is not copied.
_FREQUENT = re.compile(
    r"^\| \*\*\d+\*\* \| (?P<cells>.+?) \| (?P<ids>[A-Z0-9, -]+?)(?:; note: .+)? \|$", re.MULTILINE
)
_HEAD = "| Mistake | Result | See |\n| --- | --- | --- |\n"
_TABLE = re.compile(re.escape(_HEAD) + r"(?:\|.*\n)*")


def place(root: Path) -> str:
    """Return the part of the specification that has the table."""
    return next((name for name, text in parts(root).items() if _HEAD in text), "SPEC.md")


def updated(root: Path) -> str:
    """Return that part with the rows of the list; unchanged if the list or the table is missing."""
    text = (root / place(root)).read_text("utf-8")
    page = root / PAGE
    if not page.exists():
        return text
    rows = [
        f"| {row['cells']} | {row['ids']} |\n"
        for row in _FREQUENT.finditer(page.read_text("utf-8"))
    ]
    return _TABLE.sub(lambda _: _HEAD + "".join(rows), text, count=1)


def outdated(root: Path) -> bool:
    """Return whether the table in the specification differs from the list."""
    return updated(root) != (root / place(root)).read_text("utf-8")
