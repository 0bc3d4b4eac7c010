"""Alerts: problems that the numbers of a Redis show at once; the doctor examines more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from jobwire.inspect.fleet import Fleet
from jobwire.text import counted

__all__ = ["Alert", "alerts"]

MAX_NAMES = 5
OVERDUE_S = 60.0


class Alert(NamedTuple):
    """A problem, and where to look: `doctor`, `queues`, `scheduled`, `retry` or `unreadable`."""

    text: str
    place: str


def alerts(fleet: Fleet) -> Iterator[Alert]:
    """Yield each alert; names in its text are as stored."""
    yield from (Alert(problem, "doctor") for problem in fleet.problems[:MAX_NAMES])
    if abandoned := [queue.name for queue in fleet.queues if queue.abandoned]:
        yield Alert(f"No process serves {_listed(abandoned)}.", "queues")
    if paused := [queue.name for queue in fleet.queues if queue.paused and queue.size]:
        yield Alert(f"Jobs wait in paused queues: {_listed(paused)}.", "queues")
    for name, seconds in fleet.overdue.items():
        if seconds > OVERDUE_S:
            yield Alert(f"The first job of {name} has been due for {seconds:,.0f} s.", name)
    if fleet.sets.get("unreadable"):
        count = counted(fleet.sets["unreadable"], "payload")
        yield Alert(f"{count} could not be read.", "unreadable")


def _listed(names: list[str]) -> str:
    rest = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {rest:,} others" if rest > 0 else "")
