"""The page of the locks of unique jobs, and the action that releases one."""

from __future__ import annotations

from typing import Any

from jobwire.console.web.context import Page, Redirect, RequestContext
from jobwire.console.web.redaction import hide_arguments
from jobwire.inspect.locks import UniqueLock
from jobwire.inspect.reading import text
from jobwire.protocol.unique import UNIQUE

__all__ = ["show", "unlock"]

MAX_LOCKS = 200
EXAMINED = 20_000  # keys of the server and waiting jobs, so that the page is quick


def show(context: RequestContext) -> Page:
    """Show some locks, each with the job that has it."""
    inspector = context.operations.inspector
    read = context.shared("locks", lambda: inspector.locks(limit=MAX_LOCKS, examine=EXAMINED))
    locks = [
        (lock, context.job(lock.job) if lock.job else None, _digest(context, lock))
        for lock in read.locks
    ]
    return Page("locks.html", {"title": "Locks", "locks": locks, "complete": read.complete})


def _digest(context: RequestContext, lock: UniqueLock) -> str:
    """Return the digest if the visitor may see it: hidden arguments are found by trying values."""
    if lock.job is None and context.site.redact not in (None, hide_arguments):
        return ""  # a redaction that may look at the class
    fields: dict[str, Any] = {**(lock.job.fields if lock.job else {}), UNIQUE: lock.digest}
    return lock.digest if context.visible_fields(fields).get(UNIQUE) == lock.digest else ""


def unlock(context: RequestContext) -> Redirect:
    """Release a lock, if the job that was shown still has it."""
    lock = UniqueLock(context.field("digest"), context.field("jid"), None)
    words = "is released" if context.operations.unlock(lock) else "was free or of another job"
    return Redirect(context.back(), f"the lock of {text(lock.jid)} {words}")
