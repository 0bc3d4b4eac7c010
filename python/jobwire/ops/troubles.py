"""Troubles that the numbers of a Redis show at a glance; the doctor examines more."""

from __future__ import annotations

from collections.abc import Iterator

from jobwire.inspect.fleet import Fleet
from jobwire.protocol.plural import counted

__all__ = ["troubles"]

MOST_NAMES = 5
OVERDUE_S = 60.0


def troubles(fleet: Fleet) -> Iterator[str]:
    """Yield a sentence for each trouble; names in it are as stored."""
    yield from fleet.problems[:MOST_NAMES]
    if abandoned := [queue.name for queue in fleet.queues if queue.abandoned]:
        yield f"No process serves {_listed(abandoned)}."
    if paused := [queue.name for queue in fleet.queues if queue.paused and queue.size]:
        yield f"Jobs wait in paused queues: {_listed(paused)}."
    for name, seconds in fleet.overdue.items():
        if seconds > OVERDUE_S:
            yield f"The first job of {name} has been due for {seconds:,.0f} s."
    if fleet.sets.get("unreadable"):
        yield f"{counted(fleet.sets['unreadable'], 'payload')} could not be read."


def _listed(names: list[str]) -> str:
    rest = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {rest:,} others" if rest > 0 else "")
