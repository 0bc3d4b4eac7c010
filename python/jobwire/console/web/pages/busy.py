"""The page of processes and of the jobs that they run."""

from __future__ import annotations

from jobwire.console.ops.doctor import SILENT_S
from jobwire.console.web.context import Page, RequestContext
from jobwire.protocol.heartbeat import LEASE_S

__all__ = ["show"]

PER_PAGE = 50
MAX_GIVEN_UP = 20


def show(context: RequestContext) -> Page:
    """Show the processes, and the jobs in execution, the longest running ones first."""
    processes = context.site.fleet().processes
    start = context.number("from", 1, most=10**6) - 1
    running = context.number("running", 1, most=10**6) - 1
    page = context.shared(
        f"running {running}", lambda: context.operations.running(start=running, count=PER_PAGE)
    )
    return Page(
        "busy.html",
        {
            "title": "Busy",
            "processes": processes[start : start + PER_PAGE],
            "start": start,
            "total": len(processes),
            "works": [
                (work, context.job(work.job), context.progress(work.progress, work.job.fields))
                for work in page.works
            ],
            "running": running,
            "jobs": page.total,
            "step": PER_PAGE,
            "silent": SILENT_S,
            "lease": LEASE_S,
            "given_up": context.shared("given up", context.operations.given_up)[:MAX_GIVEN_UP],
        },
    )
