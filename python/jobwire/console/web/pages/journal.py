"""The journal: the changes that people made."""

from __future__ import annotations

import re

from jobwire.console.ops.journal import joined
from jobwire.console.ops.roles import LOWEST_ROLE
from jobwire.console.web.context import Page, RequestContext
from jobwire.errors import ConfigError

__all__ = ["show"]

PAGE_ENTRIES = 100
FILTERED_ENTRIES = 1000  # entries that are read if only some of them are shown
ENTRY_ID = re.compile(r"[0-9]{1,20}(-[0-9]{1,20})?")


def show(context: RequestContext) -> Page:
    """Show a page of the journal, newest first."""
    before, person, act = context.asked("before"), context.asked("person"), context.asked("act")
    if before and not ENTRY_ID.fullmatch(before):
        raise ConfigError(f"before: {before!r} is not the id of an entry of the journal")
    limit = FILTERED_ENTRIES if person or act else PAGE_ENTRIES
    read = context.operations.journal(limit=limit, before=before or None)
    wanted = person.casefold()
    entries = [
        entry
        for entry in joined(read)
        if wanted in entry.person.casefold() and (not act or entry.act == act)
    ]
    undoable = context.operations.undoable([entry.undo for entry in entries if entry.undo])
    rows = []
    for entry in entries:  # a deletion may have several entries; the newest gets the button
        rows.append((entry, entry.undo if entry.undo in undoable else ""))
        undoable.discard(entry.undo)
    return Page(
        "journal.html",
        {
            "title": "Journal",
            "rows": rows,
            "read": len(read),
            "older": read[-1].id if len(read) == limit else "",
            "before": before,
            "person": person,
            "act": act,
            "acts": sorted(LOWEST_ROLE),
            "working": sum(not change.ended for change in context.site.changes.all()),
        },
    )
