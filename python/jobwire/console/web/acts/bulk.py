"""Changes of many jobs: started and stopped from forms."""

from __future__ import annotations

from jobwire.console.ops.bulk import BulkState, check_act
from jobwire.console.ops.changes import Change, batches, progress_of
from jobwire.console.ops.roles import require
from jobwire.console.web.selecting import parameters, selection_of
from jobwire.console.web.visit import Absent, Redirect, Visit
from jobwire.console.web.wording import job_count, place_words, selection_words
from jobwire.errors import ConfigError

__all__ = ["start", "stop"]


def start(visit: Visit) -> Redirect:
    """Start the change that a dry run showed, and go to its page."""
    place = visit.field("place")
    if visit.field("act") == "clear":
        return _clear(visit, place)
    values = {**visit.query, **dict(visit.form)}
    chosen = selection_of(visit, values, place)
    act = check_act(visit.field("act"), place)
    states = visit.operations.bulk(act, chosen)
    # The first state needs no Redis. From here on, closing the generator writes the end.
    first: BulkState = next(states)
    change = Change(
        id=first.id,
        act=act,
        target=selection_words(place, parameters(values)),
        person=visit.visitor.person,
        work=batches(states),
        at=visit.now,
        progress=progress_of(first),
    )
    try:
        visit.site.changes.start(change)
    except BaseException:
        states.close()
        raise
    return Redirect(visit.path("changes", change.id))


def stop(visit: Visit) -> Redirect:
    """Let a change end after its batch. It needs the role that its act needs."""
    name = visit.field("id")
    change = visit.site.changes.get(name)
    if change is None:
        raise Absent(
            "this server has no such change at work: it has ended, or another server does it"
        )
    require(visit.operations.role, change.act)
    if change.act == "undo":
        raise ConfigError("an undo cannot be stopped: it would leave a part of the jobs out")
    if visit.site.changes.stop(name):
        return Redirect(visit.back(), "The change stops after its batch.")
    return Redirect(visit.back(), "The change had ended.")


def _clear(visit: Visit, place: str) -> Redirect:
    deleted = visit.operations.clear(place)
    if not deleted:
        return Redirect(visit.back(), f"There was nothing in {place_words(place)}.")
    said = f"Deleted {job_count(deleted.count)}: all of {place_words(place)}."
    return Redirect(visit.path("changes", deleted.undo), f"{said} It can be undone for 24 hours.")
