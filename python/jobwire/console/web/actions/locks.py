"""Actions on the locks of unique jobs."""

from __future__ import annotations

from jobwire.console.web.context import Redirect, RequestContext
from jobwire.inspect.locks import UniqueLock
from jobwire.inspect.reading import text

__all__ = ["unlock"]


def unlock(context: RequestContext) -> Redirect:
    """Release a lock, if the job that was shown still has it."""
    lock = UniqueLock(context.field("digest"), context.field("jid"), None)
    words = "is released" if context.operations.unlock(lock) else "was free or of another job"
    return Redirect(context.back(), f"the lock of {text(lock.jid)} {words}")
