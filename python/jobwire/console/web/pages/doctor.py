"""The doctor: findings about this Redis, its queues and its processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jobwire.console.ops.doctor import Finding
from jobwire.console.web.visit import Page, Visit
from jobwire.text import visible

__all__ = ["show"]

FRESH_S = 10.0  # for which an examination serves all visitors
WAIT_S = 0.1  # for a first examination; a longer one arrives as an update of the page

MOST_TEXT = 2000  # characters of one value

WORDS = {
    "error": "Error: jobs are lost or do not run",
    "warning": "Warning: jobs may be lost or may not run",
    "note": "Note",
}


def show(visit: Visit) -> Page:
    """Show the findings of the last examination."""
    examination = visit.site.background("doctor", visit.site.operations.doctor, FRESH_S, WAIT_S)
    return Page(
        "doctor.html",
        {
            "title": "Doctor",
            "examination": examination,
            "findings": [(one, _evidence(one)) for one in examination.value or ()],
            "words": WORDS,
        },
    )


def _evidence(finding: Finding) -> Sequence[tuple[str, str]]:
    return [(name.replace("_", " "), _spelled(value)) for name, value in finding.evidence.items()]


def _spelled(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return visible(text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…")
