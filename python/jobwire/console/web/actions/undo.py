"""The undo of a deletion."""

from __future__ import annotations

from jobwire.console.ops.changes import Change, Progress, restoring
from jobwire.console.ops.roles import require
from jobwire.console.web.context import Redirect, RequestContext
from jobwire.console.web.labels import job_count, place_words
from jobwire.errors import ConfigError

__all__ = ["undo"]

WAIT_S = 0.5  # for a small undo, so that most need no page of progress


def undo(context: RequestContext) -> Redirect:
    """Put deleted jobs back; if that takes longer than a moment, go to its page."""
    undo_id = context.field("undo")
    require(context.operations.role, "undo")
    record = context.operations.undo_record(undo_id)
    if record is None:
        raise ConfigError(
            "there is no such deletion to undo: it was undone, or its 24 hours are over"
        )
    change = Change(
        id=f"undo-{undo_id}",
        act="undo",
        target=place_words(record.place),
        person=context.visitor.person,
        work=restoring(context.operations, undo_id),
        at=context.now,
        progress=Progress(total=record.size),
    )
    context.site.changes.start(change)
    if not change.wait(WAIT_S):
        return Redirect(context.path("changes", change.id))
    if change.error:
        raise ConfigError(change.error)
    said = f"Put back {job_count(change.progress.done)}."
    if change.progress.left:
        said += f" {change.progress.left:,} were there again already."
    if change.progress.unsure:
        said += (
            f" A worker may have fetched {change.progress.unsure:,} of them at the instant of the"
            " deletion; these may run twice."
        )
    return Redirect(context.back(), said)
