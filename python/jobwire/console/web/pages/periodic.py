"""The pages of periodic jobs: all entries, and one with its next times and its newest jobs."""

from __future__ import annotations

from typing import Any

from jobwire.console.web.jobs import shortened
from jobwire.console.web.pages.entries import FURTHEST
from jobwire.console.web.visit import Absent, Page, Visit
from jobwire.errors import ConfigError
from jobwire.inspect.periodic import PeriodicJob

__all__ = ["found", "show", "show_all"]

PER_PAGE = 100
NEXT_TICKS = 10


def show_all(visit: Visit) -> Page:
    """Show all periodic jobs, those of Ruby included."""
    wanted = visit.asked("name").casefold()
    jobs = [
        job
        for job in visit.shared("periodic", lambda: visit.operations.periodic().all())
        if wanted in job.entry.name.casefold() or wanted in job.entry.job.casefold()
    ]
    start = visit.number("from", 1, most=FURTHEST) - 1
    return Page(
        "periodic.html",
        {
            "title": "Periodic jobs",
            "jobs": jobs[start : start + PER_PAGE],
            "total": len(jobs),
            "start": start,
            "step": PER_PAGE,
            "wanted": visit.asked("name"),
        },
    )


def show(visit: Visit) -> Page:
    """Show one periodic job."""
    job = found(visit, visit.name())
    history = visit.operations.periodic().history(job)
    return Page(
        "periodic_job.html",
        {
            "title": f"Periodic job {job.entry.name}",
            "job": job,
            "arguments": _arguments(visit, job),
            "ticks": _ticks(visit, job),
            "pushes": [(str(push.get("enqueued")), str(push.get("jid"))) for push in history],
        },
    )


def found(visit: Visit, name: str) -> PeriodicJob:
    """Return the periodic job of a name.

    Raises:
        Absent: There is none.
    """
    job = visit.operations.periodic().find(name)
    if job is None:
        raise Absent(f"There is no periodic job {name!r}.")
    return job


def _ticks(visit: Visit, job: PeriodicJob) -> list[int]:
    if job.entry.problem:
        return []
    try:
        return [*visit.operations.periodic().next_ticks(job, NEXT_TICKS)]
    except ConfigError:
        return []  # `job.problem` says why


def _arguments(visit: Visit, job: PeriodicJob) -> str:
    """Return the arguments that the visitor may see, as of a payload."""
    fields: dict[str, Any] = {"class": job.entry.job, "args": job.entry.args}
    return shortened(visit.visible_fields(fields).get("args", []))
