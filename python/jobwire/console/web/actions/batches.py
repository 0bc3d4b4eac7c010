"""Actions on batches."""

from __future__ import annotations

from jobwire.console.web.context import Redirect, RequestContext
from jobwire.inspect.reading import text

__all__ = ["cancel"]


def cancel(context: RequestContext) -> Redirect:
    """Cancel a batch."""
    batch_id = context.field("batch")
    words = "is cancelled" if context.operations.cancel_batch(batch_id) else "had ended or is gone"
    return Redirect(context.back(), f"batch {text(batch_id)} {words}")
