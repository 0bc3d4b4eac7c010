"""The page of fetched jobs: those that processes of the reliable profile have not finished."""

from __future__ import annotations

from jobwire.console.web.visit import Page, Visit

__all__ = ["show"]

MOST_JOBS = 10  # of each process
PER_PAGE = 20


def show(visit: Visit) -> Page:
    """Show the processes that hold jobs, with some of these."""
    inspector = visit.operations.inspector
    start = visit.number("from", 1, most=1_000_000) - 1
    page = visit.shared(
        f"held {start}",
        lambda: visit.operations.held(start=start, count=PER_PAGE, most=MOST_JOBS),
    )
    return Page(
        "held.html",
        {
            "title": "Fetched jobs",
            "holdings": [
                (one, [(queue, visit.job(entry)) for queue, entry in one.jobs])
                for one in page.holdings
            ],
            "start": start,
            "step": PER_PAGE,
            "total": page.total,
            "jobs": page.jobs,
            "recoveries": visit.shared("recoveries", inspector.recoveries),
        },
    )
