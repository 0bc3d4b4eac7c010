"""The page of failures, grouped by their cause."""

from __future__ import annotations

from typing import Any

from jobwire.ops import FailureGroup
from jobwire.web.redaction import HIDDEN
from jobwire.web.visit import Page, Visit

__all__ = ["show"]

EXAMINED = 2_000  # entries of each set, so that the page is quick
DEEPER = 100_000
MOST_GROUPS = 100


def show(visit: Visit) -> Page:
    """Show the groups of the newest failures."""
    deep = visit.asked("deep") == "1"
    examine = DEEPER if deep else EXAMINED
    groups = visit.shared(f"groups {examine}", lambda: visit.operations.groups(examine=examine))
    return Page(
        "failures.html",
        {
            "title": "Failures",
            "groups": [(group, _message(visit, group)) for group in groups.groups[:MOST_GROUPS]],
            "all": groups,
            "deep": deep,
            "deeper": DEEPER,
            "places": (("retry", "Retries"), ("dead", "Dead")),
        },
    )


def _message(visit: Visit, group: FailureGroup) -> str:
    """Return the message of a group; of one job, a redaction hides it or not."""
    if visit.site.redact is None:
        return group.message
    fields: dict[str, Any] = {"class": group.job_class, "args": [], "error_message": group.message}
    return str(visit.site.redact(visit.visitor, fields).get("error_message", HIDDEN))
