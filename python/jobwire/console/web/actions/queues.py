"""Actions on queues."""

from __future__ import annotations

from jobwire.console.web.context import Redirect, RequestContext
from jobwire.inspect.reading import text

__all__ = ["pause", "unpause"]


def pause(context: RequestContext) -> Redirect:
    """Pause a queue for jobwire's workers."""
    queue = context.field("queue")
    new = context.operations.pause(queue)
    return Redirect(context.back(), f"{text(queue)} {'is' if new else 'was already'} paused")


def unpause(context: RequestContext) -> Redirect:
    """Resume a paused queue."""
    queue = context.field("queue")
    new = context.operations.unpause(queue)
    return Redirect(
        context.back(), f"{text(queue)} {'is served again' if new else 'was not paused'}"
    )
