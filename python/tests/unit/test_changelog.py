"""changelog.d: every fragment has a kind and a text."""

from __future__ import annotations

import re
from pathlib import Path

from tests.rows import over

FRAGMENTS = Path(__file__).resolve().parents[3] / "changelog.d"
NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*\.(?:spec|added|changed|deprecated|removed|fixed)\.md")


def problem(name: str, text: str) -> str | None:
    """Return the rule that a fragment breaks, if any."""
    if NAME.fullmatch(name) is None:
        return f"{name}: the name is not <slug>.<kind>.md; see changelog.d/README.md"
    if not text.strip() or text.lstrip().startswith("#"):
        return f"{name}: a fragment is a text without headings"
    return None


def test_every_fragment_has_a_kind_and_a_text() -> None:
    fragments = [path for path in sorted(FRAGMENTS.iterdir()) if path.name != "README.md"]
    problems = [problem(path.name, path.read_text("utf-8")) for path in fragments]
    assert [found for found in problems if found] == []


@over(
    ("name", "text", "lawful"),
    [
        ("rooms.changed.md", "A text.\n", True),
        ("two-words.spec.md", "A text.\n", True),
        ("rooms.md", "A text.\n", False),
        ("rooms.gone.md", "A text.\n", False),
        ("Rooms.changed.md", "A text.\n", False),
        ("rooms.changed.txt", "A text.\n", False),
        ("rooms.changed.md", " \n", False),
        ("rooms.changed.md", "# Changed\n\nA text.\n", False),
    ],
)
def test_a_planted_fault_is_found(name: str, text: str, lawful: bool) -> None:
    assert (problem(name, text) is None) == lawful
