"""Searches in one place, page by page, in a thread that can be stopped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from jobwire.console.ops.operations import Operations
from jobwire.console.ops.selection import Selection
from jobwire.inspect.entry import Entry

__all__ = ["MAX_HITS", "Found", "scan"]

BATCH_SIZE = 200  # entries of one round trip
FIRST_BATCH_SIZE = 20  # of the first one, because a few payloads may be large
MAX_HITS = 200


@dataclass(slots=True)
class Found:
    """The result of a search in one place.

    Attributes:
        total: Number of entries in the place.
        seen: Number of entries that were examined.
        matched: Number of these that match.
        entries: The first of the matching entries, up to `MAX_HITS`.
    """

    total: int = 0
    seen: int = 0
    matched: int = 0
    entries: list[Entry] = field(default_factory=list)


def scan(
    operations: Operations,
    chosen: Selection,
    *,
    now: float,
    rising: bool,
    stop: threading.Event,
    report: Callable[[Found], None] | None = None,
    most: int = MAX_HITS,
) -> Found:
    """Return the entries of a selection. It ends when `most` were found, or on `stop`.

    Args:
        operations: The command layer.
        chosen: The entries to find.
        now: Epoch seconds, for a filter by age.
        rising: True to begin with the lowest score, or with the job of a queue that runs next.
        stop: Set to end the search after a page.
        report: Called after each page.
        most: Maximum number of entries to return.
    """
    found, step = Found(), FIRST_BATCH_SIZE
    while not stop.is_set():
        page = operations.page(chosen.place, start=found.seen, count=step, rising=rising)
        found.total = page.total
        for one in page.entries:
            found.seen += 1
            if chosen.matches(one, now=now):
                found.matched += 1
                found.entries.append(one)
                if len(found.entries) >= most:
                    return found
        if report:
            report(found)
        if len(page.entries) < step:
            return found
        step = min(2 * step, BATCH_SIZE)
    return found
