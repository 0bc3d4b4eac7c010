"""Changes of many jobs: those at work and those that ended lately."""

from __future__ import annotations

from jobwire.console.web.context import Absent, Page, RequestContext
from jobwire.console.web.labels import ACTION_WORDS

__all__ = ["show_all", "show_one"]

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
