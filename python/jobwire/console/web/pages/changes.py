"""Changes of many jobs: those at work and those that ended lately."""

from __future__ import annotations

from jobwire.console.web.visit import Absent, Page, Visit
from jobwire.console.web.wording import ACT_WORDS

__all__ = ["show_all", "show_one"]

SEARCHED = 2000  # entries of the journal, the newest first


def show_all(visit: Visit) -> Page:
    """Show the changes that this process knows."""
    return Page(
        "changes.html",
        {"title": "Changes", "changes": visit.site.changes.all(), "words": ACT_WORDS},
    )


def show_one(visit: Visit) -> Page:
    """Show the progress of a change, or its entries in the journal."""
    name = visit.name()
    change = visit.site.changes.get(name)
    if change is None:
        return _from_journal(visit, name)
    # The change goes on meanwhile, so each fact is read once, and the end before the rest.
    status = change.status
    ended, progress = status == "ended", change.progress
    undo = progress.undo if ended else ""
    return Page(
        "change.html",
        {
            "title": f"{ACT_WORDS[change.act][0]}: {change.target}",
            "change": change,
            "status": status,
            "ended": ended,
            "progress": progress,
            "error": change.error if ended else "",
            "stopped": change.stopped and ended,
            "done": ACT_WORDS[change.act][1],
            "may_stop": change.act != "undo" and not ended and visit.may(change.act),
            "undo": undo if undo in visit.operations.undoable([undo] if undo else []) else "",
        },
    )


def _from_journal(visit: Visit, name: str) -> Page:
    undone = name.removeprefix("undo-")
    entries = [
        entry
        for entry in visit.operations.journal(limit=SEARCHED)
        if undone and undone in (entry.job, entry.undo)
    ]
    if not entries:
        raise Absent(
            f"no change {name!r} is known: this server does not do it, and the newest"
            f" {SEARCHED:,} entries of the journal do not name it"
        )
    undoable = visit.operations.undoable([entry.undo for entry in entries if entry.undo])
    return Page(
        "change_journal.html",
        {
            "title": f"Change {name}",
            "entries": entries,
            "open": not any(entry.state != "begun" for entry in entries),
            "undo": next(iter(sorted(undoable)), ""),
        },
    )
