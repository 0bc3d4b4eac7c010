"""The pages of queues and of their jobs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobwire.inspect.entry import QUEUE
from jobwire.inspect.summary import QueueSummary
from jobwire.web.pages.entries import FURTHEST, PER_PAGE, find
from jobwire.web.selecting import CONDITIONS, filter_of, parameters
from jobwire.web.visit import Page, Visit

__all__ = ["show", "show_all"]

QUEUES_PER_PAGE = 100
ORDERS: dict[str, Callable[[QueueSummary], Any]] = {
    "size": lambda queue: (-queue.size, queue.name),
    "latency": lambda queue: (-queue.latency, queue.name),
    "name": lambda queue: queue.name,
}


def show_all(visit: Visit) -> Page:
    """Show all queues."""
    order = visit.asked("sort") if visit.asked("sort") in ORDERS else "size"
    wanted = visit.asked("name").casefold()
    queues = [queue for queue in visit.site.fleet().queues if wanted in queue.name.casefold()]
    queues.sort(key=ORDERS[order])
    start = visit.number("from", 1, most=FURTHEST) - 1
    return Page(
        "queues.html",
        {
            "title": "Queues",
            "queues": queues[start : start + QUEUES_PER_PAGE],
            "total": len(queues),
            "start": start,
            "step": QUEUES_PER_PAGE,
            "order": order,
            "orders": [*ORDERS],
            "wanted": visit.asked("name"),
        },
    )


def show(visit: Visit) -> Page:
    """Show one queue with its jobs."""
    name = visit.name()
    rising = visit.asked("direction") == "asc"
    start = visit.number("from", 1, most=FURTHEST) - 1
    only = filter_of({**visit.query, "queue": ""}, redacted=visit.site.redact is not None)
    found = find(visit, QUEUE + name, only, start, rising=rising)
    summary = visit.operations.inspector.queue(name)
    return Page(
        "queue.html",
        {
            "title": f"Queue {name}",
            "queue": summary,
            "found": found,
            "jobs": [
                (visit.job(entry), _position(found.start + index, rising=rising))
                for index, entry in enumerate(found.entries)
            ],
            "rising": rising,
            "filtered": bool(only),
            "conditions": {each: visit.asked(each) for each in CONDITIONS},
            "parameters": parameters({**visit.query, "queue": ""}),
            "per_page": PER_PAGE,
        },
    )


def _position(index: int, *, rising: bool) -> int:
    """Return the position in the list; from the tail it is negative, so pushes do not change it."""
    return -index - 1 if rising else index
