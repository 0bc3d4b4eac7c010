"""Changes of many jobs: those at work and those that ended lately; the undo of a deletion."""

from __future__ import annotations

from jobwire.console.ops.changes import Change, Progress, restoring
from jobwire.console.ops.roles import require
from jobwire.console.web.context import Absent, Page, Redirect, RequestContext
from jobwire.console.web.labels import ACTION_WORDS, job_count, place_words
from jobwire.errors import ConfigError

__all__ = ["show_all", "show_one", "undo"]

SEARCHED = 2000  # entries of the journal, the newest first


def show_all(context: RequestContext) -> Page:
    """Show the changes that this process knows."""
    return Page(
        "changes.html",
        {"title": "Changes", "changes": context.site.changes.all(), "words": ACTION_WORDS},
    )


def show_one(context: RequestContext) -> Page:
    """Show the progress of a change, or its entries in the journal."""
    name = context.name()
    change = context.site.changes.get(name)
    if change is None:
        return _from_journal(context, name)
    # The change goes on meanwhile, so each fact is read once, and the end before the rest.
    status = change.status
    ended, progress = status == "ended", change.progress
    undo = progress.undo if ended else ""
    return Page(
        "change.html",
        {
            "title": f"{ACTION_WORDS[change.act][0]}: {change.target}",
            "change": change,
            "status": status,
            "ended": ended,
            "progress": progress,
            "error": change.error if ended else "",
            "stopped": change.stopped and ended,
            "done": ACTION_WORDS[change.act][1],
            "may_stop": change.act != "undo" and not ended and context.may(change.act),
            "undo": undo if undo in context.operations.undoable([undo] if undo else []) else "",
        },
    )


def _from_journal(context: RequestContext, name: str) -> Page:
    undone = name.removeprefix("undo-")
    entries = [
        entry
        for entry in context.operations.journal(limit=SEARCHED)
        if undone and undone in (entry.job, entry.undo)
    ]
    if not entries:
        raise Absent(
            f"no change {name!r} is known: this server does not do it, and the newest"
            f" {SEARCHED:,} entries of the journal do not name it"
        )
    undoable = context.operations.undoable([entry.undo for entry in entries if entry.undo])
    return Page(
        "change_journal.html",
        {
            "title": f"Change {name}",
            "entries": entries,
            "open": not any(entry.state != "begun" for entry in entries),
            "undo": next(iter(sorted(undoable)), ""),
        },
    )


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
