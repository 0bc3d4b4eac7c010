"""The doctor: findings about this Redis, its queues and its processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from jobwire.console.ops.doctor import Finding
from jobwire.console.web.context import Page, RequestContext
from jobwire.text import visible

__all__ = ["show"]

FRESH_S = 10.0  # for which an examination serves all visitors
WAIT_S = 0.1  # for a first examination; a longer one arrives as an update of the page

MAX_TEXT_CHARS = 2000  # characters of one value

WORDS = {
    "error": "Error: jobs are lost or do not run",
    "warning": "Warning: jobs may be lost or may not run",
    "note": "Note",
}


def show(context: RequestContext) -> Page:
    """Show the findings of the last examination."""
    examination = context.site.background("doctor", context.site.operations.doctor, FRESH_S, WAIT_S)
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
    return visible(text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…")
