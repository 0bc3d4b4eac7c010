"""The page of parked jobs: those that no worker that fetched them may run; the action on them."""

from __future__ import annotations

from jobwire.console.web.context import Page, Redirect, RequestContext
from jobwire.console.web.pages.entries import FURTHEST, PER_PAGE
from jobwire.errors import ConfigError
from jobwire.inspect.reading import number, text

__all__ = ["show", "unpark"]


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


def unpark(context: RequestContext) -> Redirect:
    """Push a parked job back to its queue, by its exact bytes."""
    moment = number(context.field("at"))
    if moment is None:
        raise ConfigError(f"at: {context.field('at')[:100]!r} is not a number of seconds")
    job = context.operations.parked_at(
        moment, context.field("digest"), context.site.guard.digest_key
    )
    if job is None:
        return Redirect(context.back(), "the job is not parked any more")
    name = text(job.entry.jid or "(no id)")
    if not context.operations.unpark_one(job):
        return Redirect(context.back(), f"{name} stays parked: it names no queue, or is gone")
    return Redirect(context.back(), f"{name} is back in its queue")
