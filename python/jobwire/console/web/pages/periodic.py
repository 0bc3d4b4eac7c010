"""The pages of periodic jobs, all and one with its times, and the actions on them."""

from __future__ import annotations

from typing import Any

from jobwire.console.web.context import Absent, Page, Redirect, RequestContext
from jobwire.console.web.jobs import shortened
from jobwire.console.web.pages.entries import FURTHEST
from jobwire.errors import ConfigError
from jobwire.inspect.periodic import PeriodicJob
from jobwire.inspect.reading import text

__all__ = ["disable", "enable", "enqueue", "found", "remove", "show", "show_all"]

PER_PAGE = 100
NEXT_TICKS = 10


def show_all(context: RequestContext) -> Page:
    """Show all periodic jobs, those of Ruby included."""
    wanted = context.asked("name").casefold()
    jobs = [
        job
        for job in context.shared("periodic", lambda: context.operations.periodic().all())
        if wanted in job.entry.name.casefold() or wanted in job.entry.job.casefold()
    ]
    start = context.number("from", 1, most=FURTHEST) - 1
    return Page(
        "periodic.html",
        {
            "title": "Periodic jobs",
            "jobs": jobs[start : start + PER_PAGE],
            "total": len(jobs),
            "start": start,
            "step": PER_PAGE,
            "wanted": context.asked("name"),
        },
    )


def show(context: RequestContext) -> Page:
    """Show one periodic job."""
    job = found(context, context.name())
    history = context.operations.periodic().history(job)
    return Page(
        "periodic_job.html",
        {
            "title": f"Periodic job {job.entry.name}",
            "job": job,
            "arguments": _arguments(context, job),
            "ticks": _ticks(context, job),
            "pushes": [(str(push.get("enqueued")), str(push.get("jid"))) for push in history],
        },
    )


def found(context: RequestContext, name: str) -> PeriodicJob:
    """Return the periodic job of a name.

    Raises:
        Absent: There is none.
    """
    job = context.operations.periodic().find(name)
    if job is None:
        raise Absent(f"There is no periodic job {name!r}.")
    return job


def _ticks(context: RequestContext, job: PeriodicJob) -> list[int]:
    if job.entry.problem:
        return []
    try:
        return [*context.operations.periodic().next_ticks(job, NEXT_TICKS)]
    except ConfigError:
        return []  # `job.problem` says why


def _arguments(context: RequestContext, job: PeriodicJob) -> str:
    """Return the arguments that the visitor may see, as of a payload."""
    fields: dict[str, Any] = {"class": job.entry.job, "args": job.entry.args}
    return shortened(context.visible_fields(fields).get("args", []))


def enable(context: RequestContext) -> Redirect:
    """Let the ticks of an entry be taken from now on."""
    name = context.field("name")
    changed = context.operations.periodic().enable(found(context, name))
    return Redirect(context.back(), f"{text(name)} {_state_words(changed, 'enabled')}")


def disable(context: RequestContext) -> Redirect:
    """Leave the ticks of an entry out until it is enabled."""
    name = context.field("name")
    changed = context.operations.periodic().disable(found(context, name))
    return Redirect(context.back(), f"{text(name)} {_state_words(changed, 'disabled')}")


def enqueue(context: RequestContext) -> Redirect:
    """Enqueue the job of an entry now."""
    name = context.field("name")
    jid = context.operations.periodic().enqueue(found(context, name))
    return Redirect(context.back(), f"{text(name)}: enqueued as {jid}")


def remove(context: RequestContext) -> Redirect:
    """Remove an entry with its history."""
    name = context.field("name")
    removed = context.operations.periodic().remove(found(context, name))
    return Redirect(
        context.path("periodic"), f"{text(name)} {'removed' if removed else 'was gone'}"
    )


def _state_words(changed: bool | None, state: str) -> str:
    if changed is None:
        return "was gone"
    return f"is {state}" if changed else f"was {state} already"
