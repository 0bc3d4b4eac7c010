"""The page of processes and of the jobs that they run."""

from __future__ import annotations

from jobwire.protocol.heartbeat import BEAT_INTERVAL_S
from jobwire.web.visit import Page, Visit

__all__ = ["show"]

PER_PAGE = 50
SILENT_S = 2.5 * BEAT_INTERVAL_S  # without a beat, a process is probably dead


def show(visit: Visit) -> Page:
    """Show the processes, and the jobs in execution, the longest running ones first."""
    processes = visit.site.fleet().processes
    works = visit.shared("works", visit.operations.inspector.works)
    start = visit.number("from", 1, most=10**6) - 1
    running = visit.number("running", 1, most=10**6) - 1
    return Page(
        "busy.html",
        {
            "title": "Busy",
            "processes": processes[start : start + PER_PAGE],
            "start": start,
            "total": len(processes),
            "works": [(work, visit.job(work.job)) for work in works[running : running + PER_PAGE]],
            "running": running,
            "jobs": len(works),
            "step": PER_PAGE,
            "silent": SILENT_S,
        },
    )
