"""The pages of the sets: retries, scheduled, dead, unreadable."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from jobwire.console.web.places import BY_PATH, SetPage
from jobwire.console.web.selecting import CONDITIONS, filter_of, parameters
from jobwire.console.web.visit import Absent, Page, Redirect, Visit
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


def show(path: str) -> Callable[[Visit], Page]:
    """Return the page of a set."""
    shown = BY_PATH[path]

    def page(visit: Visit) -> Page:
        start = visit.number("from", 1, most=FURTHEST) - 1
        only = filter_of(visit.query, redacted=visit.site.redact is not None)
        found = find(visit, shown.name, only, start, rising=shown.rising)
        return Page("entries.html", {"title": shown.title, **listed(visit, shown, found, only)})

    return page


def listed(visit: Visit, shown: SetPage, found: Found, only: Filter) -> dict[str, object]:
    """Return the values of a list of entries."""
    return {
        "shown": shown,
        "found": found,
        "jobs": [visit.job(entry) for entry in found.entries],
        "filtered": bool(only),
        "conditions": {name: visit.asked(name) for name in CONDITIONS},
        "parameters": parameters(visit.query),
        "per_page": PER_PAGE,
    }


def find(visit: Visit, place: str, only: Filter, start: int, *, rising: bool) -> Found:
    """Return the entries of one page: without a filter those at a position, else a search."""
    operations = visit.operations
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
            if only.matches(entry, now=visit.now):
                entries.append(entry)
                if len(entries) == PER_PAGE:
                    return Found(page.total, start, seen, entries)
        if len(page.entries) < STEP or time.monotonic() > over:
            return Found(page.total, start, seen, entries)


def morgue(visit: Visit) -> Redirect:
    """Lead from the path of Sidekiq's page to ours."""
    return Redirect(visit.path("dead"))


def entry_of(visit: Visit, shown: SetPage, at: float, jid: str) -> Entry:
    """Return the entry that an address names.

    Raises:
        Absent: It is gone.
    """
    # A digest of a server with another secret: if the rest names one entry, it is that.
    for digest in (visit.asked("digest"), ""):
        found = visit.entry_at(shown.name, at, jid, digest)
        if found is not None:
            return found
    raise Absent(f"{shown.title} has no job {jid or '(without id)'} at this time any more")
