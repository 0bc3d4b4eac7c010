"""The page of the limits of jobs."""

from __future__ import annotations

from jobwire.console.web.context import Page, RequestContext
from jobwire.console.web.pages.entries import FURTHEST
from jobwire.console.web.redaction import HIDDEN, hide_arguments
from jobwire.inspect.limits import LimitState

__all__ = ["show"]

PER_PAGE = 50


def show(context: RequestContext) -> Page:
    """Show some of the limits that were used in the last day."""
    wanted = context.asked("name")
    start = context.number("from", 1, most=FURTHEST) - 1
    inspector = context.operations.inspector
    page = context.shared(
        f"limits {start} {wanted}",
        lambda: inspector.limit_page(start=start, count=PER_PAGE, wanted=wanted),
    )
    return Page(
        "limits.html",
        {
            "title": "Limits",
            "limits": [(limit, _key(context, limit)) for limit in page.limits],
            "total": page.total,
            "complete": page.complete,
            "start": start,
            "step": PER_PAGE,
            "wanted": wanted,
        },
    )


def _key(context: RequestContext, limit: LimitState) -> str:
    """Return the key if the visitor may see it: it consists of arguments of jobs."""
    if not limit.key:
        return ""
    if context.site.redact not in (None, hide_arguments):
        return HIDDEN  # a redaction that may look at the class, which is not known
    shown = context.visible_fields({"key": limit.key}).get("key")
    return shown if isinstance(shown, str) else HIDDEN
