"""The pages of the sets: retries, scheduled, dead, unreadable."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from jobwire.console.web.context import Absent, Page, Redirect, RequestContext
from jobwire.console.web.places import BY_PATH, SetPage
from jobwire.console.web.selecting import CONDITIONS, filter_of, parameters
from jobwire.inspect.entry import Entry
from jobwire.inspect.filters import Filter

__all__ = ["PER_PAGE", "Found", "find", "morgue", "show"]

PER_PAGE = 25
STEP = 200  # entries of one round trip of a search
BUDGET_S = 0.08  # of a search on one page, so that no page takes long
FURTHEST = 10**12


@dataclass(frozen=True, slots=True)
class Found:
    """Entries that a search found before its time was over.

    Attributes:
        total: Number of entries in the place.
        start: Position of the first entry that was examined.
        seen: Number of entries that were examined.
        entries: Those that match.
    """

    total: int
    start: int
    seen: int
    entries: list[Entry]

    @property
    def following(self) -> int | None:
        """Position at which the search goes on; None at the end."""
        behind = self.start + self.seen
        return behind if behind < self.total and self.seen else None


def show(path: str) -> Callable[[RequestContext], Page]:
    """Return the page of a set."""
    shown = BY_PATH[path]

    def page(context: RequestContext) -> Page:
        start = context.number("from", 1, most=FURTHEST) - 1
        only = filter_of(context.query, redacted=context.site.redact is not None)
        found = find(context, shown.name, only, start, rising=shown.rising)
        return Page("entries.html", {"title": shown.title, **listed(context, shown, found, only)})

    return page


def listed(
    context: RequestContext, shown: SetPage, found: Found, only: Filter
) -> dict[str, object]:
    """Return the values of a list of entries."""
    return {
        "shown": shown,
        "found": found,
        "jobs": [context.job(entry) for entry in found.entries],
        "filtered": bool(only),
        "conditions": {name: context.asked(name) for name in CONDITIONS},
        "parameters": parameters(context.query),
        "per_page": PER_PAGE,
    }


def find(context: RequestContext, place: str, only: Filter, start: int, *, rising: bool) -> Found:
    """Return the entries of one page: without a filter those at a position, else a search."""
    operations = context.operations
    if not only:
        page = operations.page(place, start=start, count=PER_PAGE, rising=rising)
        return Found(page.total, start, len(page.entries), list(page.entries))
    over = time.monotonic() + BUDGET_S
    entries: list[Entry] = []
    seen = 0
    while True:
        page = operations.page(place, start=start + seen, count=STEP, rising=rising)
        for entry in page.entries:
            seen += 1
            if only.matches(entry, now=context.now):
                entries.append(entry)
                if len(entries) == PER_PAGE:
                    return Found(page.total, start, seen, entries)
        if len(page.entries) < STEP or time.monotonic() > over:
            return Found(page.total, start, seen, entries)


def morgue(context: RequestContext) -> Redirect:
    """Lead from the path of Sidekiq's page to ours."""
    return Redirect(context.path("dead"))


def entry_of(context: RequestContext, shown: SetPage, at: float, jid: str) -> Entry:
    """Return the entry that an address names.

    Raises:
        Absent: It is gone.
    """
    # A digest of a server with another secret: if the rest names one entry, it is that.
    for digest in (context.asked("digest"), ""):
        found = context.entry_at(shown.name, at, jid, digest)
        if found is not None:
            return found
    raise Absent(f"{shown.title} has no job {jid or '(without id)'} at this time any more")
