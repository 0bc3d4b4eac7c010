"""The page of failures, grouped by their cause."""

from __future__ import annotations

from typing import Any

from jobwire.console.ops.groups import FailureGroup
from jobwire.console.web.context import Page, RequestContext
from jobwire.console.web.redaction import HIDDEN

__all__ = ["show"]

EXAMINED = 2_000  # entries of each set, so that the page is quick
DEEPER = 100_000
MAX_GROUPS = 100


def show(context: RequestContext) -> Page:
    """Show the groups of the newest failures."""
    deep = context.asked("deep") == "1"
    examine = DEEPER if deep else EXAMINED
    groups = context.shared(f"groups {examine}", lambda: context.operations.groups(examine=examine))
    return Page(
        "failures.html",
        {
            "title": "Failures",
            "groups": [_seen(context, group) for group in groups.groups[:MAX_GROUPS]],
            "all": groups,
            "deep": deep,
            "deeper": DEEPER,
            "places": (("retry", "Retries"), ("dead", "Dead")),
        },
    )


def _seen(context: RequestContext, group: FailureGroup) -> tuple[FailureGroup, str, str, str]:
    """Return a group, the parts of its message and frame to show, and its name for actions.

    A redaction decides as about one job of the group. The name is "" if something is hidden,
    because the key in it is a digest of both.
    """
    stored: dict[str, Any] = {
        "error_message": group.message,
        "error_backtrace": [group.frame] if group.frame else [],
    }
    fields = {"class": group.job_class, "args": [], "error_class": group.error_class, **stored}
    shown = context.visible_fields(fields)
    message = str(shown.get("error_message", HIDDEN))
    frame = group.frame if shown.get("error_backtrace") == stored["error_backtrace"] else HIDDEN
    whole = (message, frame) == (group.message, group.frame)
    return group, message, frame, context.site.guard.signed_group(group.key) if whole else ""
