"""The page of fetched jobs: those that processes of the reliable profile have not finished."""

from __future__ import annotations

from jobwire.console.web.context import Page, RequestContext

__all__ = ["show"]

MAX_JOBS = 10  # of each process
PER_PAGE = 20


def show(context: RequestContext) -> Page:
    """Show the processes that hold jobs, with some of these."""
    inspector = context.operations.inspector
    start = context.number("from", 1, most=1_000_000) - 1
    page = context.shared(
        f"held {start}",
        lambda: context.operations.held(start=start, count=PER_PAGE, most=MAX_JOBS),
    )
    return Page(
        "held.html",
        {
            "title": "Fetched jobs",
            "holdings": [
                (one, [(queue, context.job(entry)) for queue, entry in one.jobs])
                for one in page.holdings
            ],
            "start": start,
            "step": PER_PAGE,
            "total": page.total,
            "jobs": page.jobs,
            "recoveries": context.shared("recoveries", inspector.recoveries),
        },
    )
