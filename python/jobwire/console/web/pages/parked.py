"""The page of parked jobs: those that no worker that fetched them may run."""

from __future__ import annotations

from jobwire.console.web.context import Page, RequestContext
from jobwire.console.web.pages.entries import FURTHEST, PER_PAGE

__all__ = ["show"]


def show(context: RequestContext) -> Page:
    """Show some parked jobs, the oldest first."""
    start = context.number("from", 1, most=FURTHEST) - 1
    page = context.operations.parked_page(start=start, count=PER_PAGE)
    return Page(
        "parked.html",
        {
            "title": "Parked",
            "jobs": [(context.job(one.entry), one.reason) for one in page.jobs],
            "total": page.total,
            "start": start,
            "step": PER_PAGE,
        },
    )
