"""The search in all places, within a time that a page may take."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jobwire.console.web.jobs import JobView
from jobwire.console.web.places import SETS, path_of
from jobwire.console.web.selecting import HIDEABLE, filter_of
from jobwire.console.web.visit import Page, Redirect, Visit
from jobwire.inspect.entry import QUEUE, Entry
from jobwire.inspect.filters import Filter

__all__ = ["show"]

BUDGET_S = 0.1
STEP = 200
MOST_HITS = 10  # of each place
MOST_QUEUES = 20  # the longest ones
JID = re.compile(r"[0-9a-f]{24}")
FIELDS = ("class", "error", "text", "tag")


@dataclass(frozen=True, slots=True)
class Hits:
    """The jobs of one place that were found.

    Attributes:
        title: Name of the place.
        path: Path of its list with the same filter.
        jobs: Some jobs, each with the path of its page.
        seen: Number of jobs examined.
        total: Number of jobs in the place.
    """

    title: str
    path: str
    jobs: list[tuple[JobView, str]]
    seen: int
    total: int


def show(visit: Visit) -> Page | Redirect:
    """Show the jobs that match, by place; a job id leads to its page."""
    asked, field = visit.asked("q"), visit.asked("in") or "class"
    if JID.fullmatch(asked):
        return Redirect(visit.path("jobs", asked))
    fields = [name for name in FIELDS if name not in HIDEABLE or visit.site.redact is None]
    field = field if field in fields else "class"
    hits = [*_search(visit, asked, field)] if asked else []
    return Page(
        "search.html",
        {"title": "Search", "asked": asked, "field": field, "fields": fields, "hits": hits},
    )


def _search(visit: Visit, asked: str, field: str) -> Iterator[Hits]:
    wanted = f"*{asked}*" if field == "class" and "*" not in asked else asked
    only = filter_of({field: wanted}, redacted=False)
    queues = sorted(visit.site.fleet().queues, key=lambda queue: -queue.size)[:MOST_QUEUES]
    places: list[tuple[str, str, tuple[str, ...]]] = [
        (name, page.title, (page.path,)) for name, page in SETS.items()
    ]
    places += [
        (QUEUE + queue.name, f"Queue {queue.name}", ("queues", queue.name))
        for queue in queues
        if queue.size
    ]
    share = BUDGET_S / max(len(places), 1)
    for place, title, parts in places:
        entries, seen, total = _look(visit, place, only, share)
        query: dict[str, Any] = {field: wanted}
        jobs = [(visit.job(entry), path_of(visit, entry)) for entry in entries]
        if total:
            yield Hits(title, visit.path(*parts, **query), jobs, seen, total)


def _look(visit: Visit, place: str, only: Filter, share: float) -> tuple[list[Entry], int, int]:
    over = time.monotonic() + share
    found: list[Entry] = []
    seen = 0
    while True:
        page = visit.operations.page(place, start=seen, count=STEP)
        seen += len(page.entries)
        found += [entry for entry in page.entries if only.matches(entry, now=visit.now)]
        if len(page.entries) < STEP or len(found) >= MOST_HITS or time.monotonic() > over:
            return found[:MOST_HITS], seen, page.total
