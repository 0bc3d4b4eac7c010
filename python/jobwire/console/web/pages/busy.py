"""The page of processes and of the jobs that they run."""

from __future__ import annotations

from jobwire.console.ops.doctor import SILENT_S
from jobwire.console.web.visit import Page, Visit
from jobwire.protocol.heartbeat import LEASE_S

__all__ = ["show"]

PER_PAGE = 50
MOST_GIVEN_UP = 20


def show(visit: Visit) -> Page:
    """Show the processes, and the jobs in execution, the longest running ones first."""
    processes = visit.site.fleet().processes
    start = visit.number("from", 1, most=10**6) - 1
    running = visit.number("running", 1, most=10**6) - 1
    page = visit.shared(
        f"running {running}", lambda: visit.operations.running(start=running, count=PER_PAGE)
    )
    return Page(
        "busy.html",
        {
            "title": "Busy",
            "processes": processes[start : start + PER_PAGE],
            "start": start,
            "total": len(processes),
            "works": [(work, visit.job(work.job)) for work in page.works],
            "running": running,
            "jobs": page.total,
            "step": PER_PAGE,
            "silent": SILENT_S,
            "lease": LEASE_S,
            "given_up": visit.shared("given up", visit.operations.given_up)[:MOST_GIVEN_UP],
        },
    )
