"""Actions on parked jobs."""

from __future__ import annotations

from jobwire.console.web.context import Redirect, RequestContext
from jobwire.errors import ConfigError
from jobwire.inspect.reading import number, text

__all__ = ["unpark"]


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
