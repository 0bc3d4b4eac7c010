"""Acts on queues."""

from __future__ import annotations

from jobwire.console.web.visit import Redirect, Visit
from jobwire.inspect.reading import text

__all__ = ["pause", "unpause"]


def pause(visit: Visit) -> Redirect:
    """Pause a queue for jobwire's workers."""
    queue = visit.field("queue")
    new = visit.operations.pause(queue)
    return Redirect(visit.back(), f"{text(queue)} {'is' if new else 'was already'} paused")


def unpause(visit: Visit) -> Redirect:
    """Resume a paused queue."""
    queue = visit.field("queue")
    new = visit.operations.unpause(queue)
    return Redirect(visit.back(), f"{text(queue)} {'is served again' if new else 'was not paused'}")
