"""changelog.d: every fragment has a kind and a text."""

from __future__ import annotations

import re
from pathlib import Path

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
