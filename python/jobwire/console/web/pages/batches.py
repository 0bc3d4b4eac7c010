"""The pages of batches: the newest ones, and one with its members; the action that cancels it."""

from __future__ import annotations

from jobwire.console.web.context import Absent, Page, Redirect, RequestContext
from jobwire.console.web.redaction import HIDDEN
from jobwire.inspect.batches import MAX_MEMBERS
from jobwire.inspect.reading import text
from jobwire.protocol.batches import BatchStatus

__all__ = ["cancel", "show", "show_all"]

MAX_BATCHES = 100
EXAMINED = 20_000  # keys of the server, so that the page is quick


def show_all(context: RequestContext) -> Page:
    """Show the newest batches."""
    inspector = context.operations.inspector
    read = context.shared("batches", lambda: inspector.batches(limit=MAX_BATCHES, examine=EXAMINED))
    batches = [(depth, batch, _description(context, batch)) for depth, batch in read.nested()]
    return Page("batches.html", {"title": "Batches", "batches": batches, "complete": read.complete})


def show(context: RequestContext) -> Page:
    """Show one batch with some of its members."""
    batch_id = context.name()
    inspector = context.operations.inspector
    if context.updating:  # an open page; after an action the page shows what is new
        batch = context.shared(f"batch {batch_id}", lambda: inspector.batch(batch_id))
    else:
        batch = inspector.batch(batch_id)
    if batch is None:
        raise Absent(f"There is no batch {batch_id!r}; it is kept for 30 days after its end.")
    return Page(
        "batch.html",
        {
            "title": "Batch",
            "batch": batch,
            "description": _description(context, batch),
            "members": context.shared(
                f"members {batch_id}", lambda: inspector.batch_members(batch_id)
            ),
            "most": MAX_MEMBERS,
        },
    )


def _description(context: RequestContext, batch: BatchStatus) -> str:
    """Return the text of the application's author, which may quote arguments of its jobs."""
    shown = context.visible_fields({"description": batch.description}).get("description")
    return shown if isinstance(shown, str) else HIDDEN


def cancel(context: RequestContext) -> Redirect:
    """Cancel a batch."""
    batch_id = context.field("batch")
    words = "is cancelled" if context.operations.cancel_batch(batch_id) else "had ended or is gone"
    return Redirect(context.back(), f"batch {text(batch_id)} {words}")
