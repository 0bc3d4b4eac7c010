"""Section 26 of SPEC.md: a copy of the frequent rows of docs/reference/traps.md."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["PAGE", "outdated", "updated"]

PAGE = "docs/reference/traps.md"

# A frequent trap has its number in bold. The last cell may end with a note, which is not copied.
_FREQUENT = re.compile(
    r"^\| \*\*\d+\*\* \| (?P<cells>.+?) \| (?P<ids>[A-Z0-9, -]+?)(?:; note: .+)? \|$", re.MULTILINE
)
_HEAD = "| Mistake | Result | See |\n| --- | --- | --- |\n"
_TABLE = re.compile(re.escape(_HEAD) + r"(?:\|.*\n)*")


def updated(root: Path) -> str:
    """Return SPEC.md with the rows of the list; unchanged if the list or the table is missing."""
    spec = (root / "SPEC.md").read_text("utf-8")
    page = root / PAGE
    if not page.exists():
        return spec
    rows = [
        f"| {row['cells']} | {row['ids']} |\n"
        for row in _FREQUENT.finditer(page.read_text("utf-8"))
    ]
    return _TABLE.sub(lambda _: _HEAD + "".join(rows), spec, count=1)


def outdated(root: Path) -> bool:
    """Return whether the table in SPEC.md differs from the list."""
    return updated(root) != (root / "SPEC.md").read_text("utf-8")
