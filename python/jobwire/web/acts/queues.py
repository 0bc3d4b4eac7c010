"""Acts on queues and whole sets."""

from __future__ import annotations

from jobwire.inspect.entry import QUEUE
from jobwire.inspect.reading import text
from jobwire.protocol.plural import counted
from jobwire.web.visit import Redirect, Visit

__all__ = ["clear", "pause", "unpause"]


def pause(visit: Visit) -> Redirect:
    """Pause a queue for jobwire's workers."""
    queue = visit.field("queue")
    new = visit.operations.pause(queue)
    return Redirect(visit.back(), f"{text(queue)} {'is' if new else 'was already'} paused")


def unpause(visit: Visit) -> Redirect:
    """Let a queue be served again."""
    queue = visit.field("queue")
    new = visit.operations.unpause(queue)
    return Redirect(visit.back(), f"{text(queue)} {'is served again' if new else 'was not paused'}")


def clear(visit: Visit) -> Redirect:
    """Delete a whole set, or a queue."""
    place = visit.field("place")
    deleted = visit.operations.clear(place)
    shown = f"queue {text(place.removeprefix(QUEUE))}" if place.startswith(QUEUE) else place
    undo = "; the journal can put them back" if deleted.count else ""
    return Redirect(visit.back(), f"{counted(deleted.count, 'job')} of {shown} deleted{undo}")
