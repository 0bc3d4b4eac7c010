"""Actions on iterable jobs."""

from __future__ import annotations

from jobwire.console.web.context import Redirect, RequestContext
from jobwire.inspect.display import CANCELLED
from jobwire.inspect.reading import text

__all__ = ["cancel"]


def cancel(context: RequestContext) -> Redirect:
    """Cancel a job."""
    jid = context.field("jid")
    outcome = CANCELLED[context.operations.cancel(jid).place]
    return Redirect(context.back(), f"{text(jid)} {outcome}")
