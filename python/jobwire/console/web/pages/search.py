"""The search in all places, within a time that a page may take."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from jobwire.console.web.context import Page, Redirect, RequestContext
from jobwire.console.web.jobs import JobView
from jobwire.console.web.places import SETS, path_of
from jobwire.console.web.selecting import HIDEABLE, filter_of
from jobwire.inspect.entry import QUEUE, Entry
from jobwire.inspect.filters import Filter

__all__ = ["show"]

BUDGET_S = 0.07
STEP = 200
MAX_HITS = 10  # of each place
MAX_QUEUES = 20  # the longest ones
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


def show(context: RequestContext) -> Page | Redirect:
    """Show the jobs that match, by place; a job id leads to its page."""
    asked, field = context.asked("q"), context.asked("in") or "class"
    if JID.fullmatch(asked):
        return Redirect(context.path("jobs", asked))
    fields = [name for name in FIELDS if name not in HIDEABLE or context.site.redact is None]
    field = field if field in fields else "class"
    hits = [*_search(context, asked, field)] if asked else []
    return Page(
        "search.html",
        {"title": "Search", "asked": asked, "field": field, "fields": fields, "hits": hits},
    )


def _search(context: RequestContext, asked: str, field: str) -> Iterator[Hits]:
    wanted = f"*{asked}*" if field == "class" and "*" not in asked else asked
    only = filter_of({field: wanted}, redacted=False)
    queues = sorted(context.site.fleet().queues, key=lambda queue: -queue.size)[:MAX_QUEUES]
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
        entries, seen, total = _look(context, place, only, share)
        query: dict[str, Any] = {field: wanted}
        jobs = [(context.job(entry), path_of(context, entry)) for entry in entries]
        if total:
            yield Hits(title, context.path(*parts, **query), jobs, seen, total)


def _look(
    context: RequestContext, place: str, only: Filter, share: float
) -> tuple[list[Entry], int, int]:
    over = time.monotonic() + share
    found: list[Entry] = []
    seen = 0
    while True:
        page = context.operations.page(place, start=seen, count=STEP)
        seen += len(page.entries)
        found += [entry for entry in page.entries if only.matches(entry, now=context.now)]
        if len(page.entries) < STEP or len(found) >= MAX_HITS or time.monotonic() > over:
            return found[:MAX_HITS], seen, page.total
