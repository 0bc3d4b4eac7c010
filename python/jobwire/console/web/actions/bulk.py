"""Changes of many jobs: started and stopped from forms."""

from __future__ import annotations

from jobwire.console.ops.bulk import BulkState, check_action
from jobwire.console.ops.changes import Change, batches, progress_of
from jobwire.console.ops.roles import require
from jobwire.console.web.context import Absent, Redirect, RequestContext
from jobwire.console.web.labels import job_count, place_words, selection_words
from jobwire.console.web.selecting import parameters, selection_of
from jobwire.errors import ConfigError

__all__ = ["start", "stop"]


def start(context: RequestContext) -> Redirect:
    """Start the change that a dry run showed, and go to its page."""
    place = context.field("place")
    if context.field("act") == "clear":
        return _clear(context, place)
    values = {**context.query, **dict(context.form)}
    chosen = selection_of(context, values, place)
    act = check_action(context.field("act"), place)
    states = context.operations.bulk(act, chosen)
    # The first state needs no Redis. From here on, closing the generator writes the end.
    first: BulkState = next(states)
    change = Change(
        id=first.id,
        act=act,
        target=selection_words(place, parameters(values)),
        person=context.visitor.person,
        work=batches(states),
        at=context.now,
        progress=progress_of(first),
    )
    try:
        context.site.changes.start(change)
    except BaseException:
        states.close()
        raise
    return Redirect(context.path("changes", change.id))


def stop(context: RequestContext) -> Redirect:
    """Let a change end after its batch. It needs the role that its action needs."""
    name = context.field("id")
    change = context.site.changes.get(name)
    if change is None:
        raise Absent(
            "this server has no such change at work: it has ended, or another server does it"
        )
    require(context.operations.role, change.act)
    if change.act == "undo":
        raise ConfigError("an undo cannot be stopped: it would leave a part of the jobs out")
    if context.site.changes.stop(name):
        return Redirect(context.back(), "The change stops after its batch.")
    return Redirect(context.back(), "The change had ended.")


def _clear(context: RequestContext, place: str) -> Redirect:
    deleted = context.operations.clear(place)
    if not deleted:
        return Redirect(context.back(), f"There was nothing in {place_words(place)}.")
    said = f"Deleted {job_count(deleted.count)}: all of {place_words(place)}."
    return Redirect(context.path("changes", deleted.undo), f"{said} It can be undone for 24 hours.")
