"""The pages of the sets: retries, scheduled, dead, unreadable; the actions on their entries."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from jobwire.console.ops.bulk import BulkAction
from jobwire.console.web.context import Absent, Page, Redirect, RequestContext
from jobwire.console.web.jobs import split_key
from jobwire.console.web.places import BY_PATH, SETS, SetPage
from jobwire.console.web.selecting import CONDITIONS, filter_of, parameters
from jobwire.errors import ConfigError, PayloadError
from jobwire.inspect.entry import QUEUE, Entry, SetName
from jobwire.inspect.filters import Filter
from jobwire.inspect.formats import seconds
from jobwire.protocol.times import instant
from jobwire.text import counted

__all__ = [
    "MAX_ENTRIES",
    "PER_PAGE",
    "Found",
    "act_on_each",
    "chosen",
    "delete",
    "find",
    "morgue",
    "reschedule",
    "show",
]

PER_PAGE = 25
STEP = 200  # entries of one round trip of a search
BUDGET_S = 0.06  # of a search on one page, so that no page takes long
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


MAX_ENTRIES = 200  # per form; larger selections run as a background change
DONE = {
    "retry": "pushed to their queues",
    "add_to_queue": "pushed to their queues",
    "kill": "moved to the dead set",
}


def chosen(context: RequestContext) -> tuple[list[Entry], int]:
    """Return the entries that the form names, and the number of those that are gone.

    A name is `<key> <digest>`; for a job of a queue, the key is the position where it was seen.

    Raises:
        ConfigError: The form names none, too many, or something else.
    """
    place, names = context.field("place"), context.fields("entry")
    if not names:
        raise ConfigError("nothing is selected; tick the jobs first")
    if len(names) > MAX_ENTRIES:
        raise ConfigError(f"entry: {len(names)} are more than {MAX_ENTRIES} at a time")
    found = [_find(context, place, name) for name in names]
    return [one for one in found if one is not None], found.count(None)


def act_on_each(act: BulkAction) -> Callable[[RequestContext], Redirect]:
    """Return the action that changes each chosen entry."""

    def do(context: RequestContext) -> Redirect:
        entries, gone = chosen(context)
        change = getattr(context.operations, act)
        done, problems = 0, []
        for entry in entries:
            try:
                changed = change(entry)
            except PayloadError as error:  # it stays where it is
                problems.append(str(error))
            else:
                done += bool(changed)
                gone += not changed
        return Redirect(context.back(), _summary(done, DONE[act], gone, problems))

    return do


def delete(context: RequestContext) -> Redirect:
    """Delete the chosen entries."""
    entries, gone = chosen(context)
    removed = [context.operations.delete(entry) for entry in entries]
    done = sum(one.count for one in removed)
    gone += sum(not one.count for one in removed)
    undo = "; the journal can put them back" if done else ""
    return Redirect(context.back(), _summary(done, "deleted", gone, []) + undo)


def reschedule(context: RequestContext) -> Redirect:
    """Change the time at which an entry is due."""
    asked = context.field("at").strip()
    moment = instant(_when(asked), now=context.now)
    entries, gone = chosen(context)
    done = sum(context.operations.reschedule(entry, moment) for entry in entries)
    return Redirect(context.back(), _summary(done, "due at another time", gone, []))


def _when(asked: str) -> float | datetime:
    text = asked.removeprefix("in ").strip()
    try:
        return seconds(text) if "-" not in text[1:] else datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"at: {asked!r} is not a time; write 15m, 2h or 3d, or a date like 2026-12-24T18:00Z"
        ) from None


def _find(context: RequestContext, place: str, name: str) -> Entry | None:
    key, _, digest = name.rpartition(" ")
    if place.startswith(QUEUE):
        try:
            position = int(key)
        except ValueError:
            raise ConfigError(f"entry: {name!r} names no job of a queue") from None
        return context.job_near(place.removeprefix(QUEUE), position, digest)
    parts = split_key(key)
    if parts is None or place not in SETS:
        raise ConfigError(f"unknown entry {name!r} of {place!r}")
    return context.entry_at(cast("SetName", place), *parts, digest)


def _summary(done: int, words: str, gone: int, problems: list[str]) -> str:
    summary = f"{counted(done, 'job')} {words}"
    if gone:
        summary += f"; {gone} had gone already"
    return "; ".join([summary, *problems[:3]])
