"""A change of many jobs: its dry run with number and sample, its start, and its stop."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Literal

from jobwire.console.ops.bulk import BulkAction, BulkState, check_action
from jobwire.console.ops.changes import Change, batches, progress_of
from jobwire.console.ops.roles import Action, require
from jobwire.console.ops.selection import Preview, check_place
from jobwire.console.web.context import Absent, Page, Redirect, RequestContext
from jobwire.console.web.labels import ACTION_WORDS, LABELS, job_count, place_words, selection_words
from jobwire.console.web.selecting import CONDITIONS, parameters, selection_of
from jobwire.errors import ConfigError
from jobwire.inspect.entry import QUEUE
from jobwire.protocol.dead_set import MAX_JOBS

__all__ = ["show", "start", "stop"]

TIME_S = 0.07  # for the dry run; the change itself examines all
MAX_EXAMINED = 20_000  # entries that the dry run examines, however fast they come

PAGES_OF_SETS = {
    "schedule": "scheduled",
    "retry": "retries",
    "dead": "dead",
    "unreadable": "unreadable",
}

CONSEQUENCES: Mapping[str, Sequence[str]] = {
    "retry": (
        "Each job goes to its queue now, and gets back the attempt that it used.",
        "This cannot be undone: the jobs may run at once.",
    ),
    "add_to_queue": (
        "Each job goes to its queue now.",
        "This cannot be undone: the jobs may run at once.",
    ),
    "kill": (
        "Each job goes to the dead jobs, and runs only if a person retries it.",
        f"The dead set keeps {MAX_JOBS:,} jobs, unless the workers are set otherwise. Beyond"
        " that, the oldest jobs are removed for good.",
    ),
    "delete": (
        "Each job is deleted and does not run.",
        "This can be undone for 24 hours, in the journal.",
    ),
    "clear": (
        "All of them are deleted in one step, also those that arrive before you confirm.",
        "This can be undone for 24 hours, in the journal.",
    ),
}


def show(context: RequestContext) -> Page:
    """Show what a change would do. It needs the role of the change, because it counts jobs."""
    place, act = check_place(context.asked("place")), _act(context)
    values = context.query
    given = parameters(values)
    if act == "clear" and given:
        raise ConfigError(f"clear: it deletes all of {place_words(place)}; leave the filter out")
    chosen = selection_of(context, values, place)
    if act == "clear":
        require(context.operations.role, act)
    else:
        context.operations.require_bulk(act, chosen)
    began = time.monotonic()
    preview = context.operations.preview(
        chosen, examine=MAX_EXAMINED, enough=lambda: time.monotonic() - began > TIME_S
    )
    word, _ = ACTION_WORDS[act]
    return Page(
        "bulk.html",
        {
            "title": f"{word}: {place_words(place)}",
            "act": act,
            "place": place,
            "place_words": place_words(place),
            "conditions": [
                (LABELS[name], value.partition("-")[0] if name == "group" else value)
                for name, value in given.items()
            ],
            "preview": preview,
            "everything": chosen.everything,
            "count": _count(preview),
            "button_label": _button(act, preview),
            "consequences": CONSEQUENCES[act],
            "sample": [context.job(entry) for entry in preview.sample],
            "target": context.path("acts", "bulk", place=place, act=act, **given),
            "given": {"place": place, "act": act, **given},
            "cancel": _cancel(context, place, given),
            # Many steps of 500 jobs, or one: people who may clear can choose.
            "clear": chosen.everything and act == "delete" and context.may("clear"),
        },
    )


def _act(context: RequestContext) -> BulkAction | Literal["clear"]:
    asked, place = context.asked("act"), context.asked("place")
    return "clear" if asked == "clear" else check_action(asked, place)


def _count(preview: Preview) -> str:
    """Return the number of jobs in words."""
    if preview.complete:
        return f"{job_count(preview.matched)} of {preview.total:,}"
    return (
        f"{job_count(preview.matched)} among the first {preview.seen:,} that were examined,"
        f" of {preview.total:,}"
    )


def _button(act: Action, preview: Preview) -> str:
    word, _ = ACTION_WORDS[act]
    if preview.complete:
        number = job_count(preview.matched)
        return f"Add {number} to the queue" if act == "add_to_queue" else f"{word} {number}"
    return "Add all that match to the queue" if act == "add_to_queue" else f"{word} all that match"


def _cancel(context: RequestContext, place: str, given: Mapping[str, str]) -> str:
    given = {name: value for name, value in given.items() if name in CONDITIONS}
    if place.startswith(QUEUE):
        return context.path("queues", place.removeprefix(QUEUE))
    return context.path(PAGES_OF_SETS[place], **given)


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
