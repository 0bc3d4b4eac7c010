"""The pages of queues and of their jobs; the actions on queues."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from jobwire.console.web import charts
from jobwire.console.web.context import Page, Redirect, RequestContext
from jobwire.console.web.pages.entries import FURTHEST, PER_PAGE, find
from jobwire.console.web.rendering import duration, number
from jobwire.console.web.selecting import CONDITIONS, filter_of, parameters
from jobwire.console.web.site import Site
from jobwire.console.web.sizes import GAP_S, MAX_QUEUES, SizeLine
from jobwire.inspect.entry import QUEUE
from jobwire.inspect.reading import text
from jobwire.inspect.summary import QueueSummary

__all__ = ["pause", "show", "show_all", "unpause"]

QUEUES_PER_PAGE = 100
ORDERS: dict[str, Callable[[QueueSummary], Any]] = {
    "size": lambda queue: (-queue.size, queue.name),
    "latency": lambda queue: (-queue.latency, queue.name),
    "name": lambda queue: queue.name,
}


def show_all(context: RequestContext) -> Page:
    """Show all queues."""
    order = context.asked("sort") if context.asked("sort") in ORDERS else "size"
    wanted = context.asked("name").casefold()
    queues = [queue for queue in context.site.fleet().queues if wanted in queue.name.casefold()]
    queues.sort(key=ORDERS[order])
    start = context.number("from", 1, most=FURTHEST) - 1
    return Page(
        "queues.html",
        {
            "title": "Queues",
            "queues": [
                (queue, _line(context.site.sizes.of(queue.name)))
                for queue in queues[start : start + QUEUES_PER_PAGE]
            ],
            **_sampling(context.site),
            "total": len(queues),
            "start": start,
            "step": QUEUES_PER_PAGE,
            "order": order,
            "orders": [*ORDERS],
            "wanted": context.asked("name"),
        },
    )


def show(context: RequestContext) -> Page:
    """Show one queue with its jobs."""
    name = context.name()
    if context.updating:  # the list of jobs stays as it is, so it need not be read
        return Page("queue.html", _live(context, _known(context, name)))
    rising = context.asked("direction") == "asc"
    start = context.number("from", 1, most=FURTHEST) - 1
    only = filter_of({**context.query, "queue": ""}, redacted=context.site.redact is not None)
    found = find(context, QUEUE + name, only, start, rising=rising)
    return Page(
        "queue.html",
        {
            **_live(context, _known(context, name)),
            "title": f"Queue {name}",
            "found": found,
            "jobs": [
                (context.job(entry), _position(found.start + index, rising=rising))
                for index, entry in enumerate(found.entries)
            ],
            "rising": rising,
            "filtered": bool(only),
            "conditions": {each: context.asked(each) for each in CONDITIONS},
            "parameters": parameters({**context.query, "queue": ""}),
            "per_page": PER_PAGE,
        },
    )


def _known(context: RequestContext, name: str) -> QueueSummary:
    """Return a queue from the numbers that the menu needs anyway; read it if it is not there."""
    for queue in context.site.fleet().queues:
        if queue.name == name:
            return queue
    return context.shared(f"queue {name}", lambda: context.operations.inspector.queue(name))


def _live(context: RequestContext, queue: QueueSummary) -> dict[str, Any]:
    """Return the values of the live part of the page of a queue."""
    context.site.fleet()  # takes a sample
    line = context.site.sizes.of(queue.name)
    return {
        "queue": queue,
        "line": _line(line),
        "words": "" if line is None else _words(line),
        **_sampling(context.site),
    }


def _line(line: SizeLine | None) -> Markup | None:
    if line is None:
        return None
    return charts.timeline(line.times, line.sizes, gap=GAP_S, title=_words(line))


def _words(line: SizeLine) -> str:
    """Return a line in words, for people who do not see it."""
    first, last, most = (number(size) for size in (line.sizes[0], line.sizes[-1], max(line.sizes)))
    if not line.seconds:
        return f"Size in the only sample so far: {last}"
    return f"Size in the last {duration(line.seconds)}: from {first} to {last}, most {most}"


def _sampling(site: Site) -> dict[str, Any]:
    """Return what the pages say about the samples."""
    since = site.sizes.since
    # A time of day stays the same, so an update is sent only if there is a new sample.
    since_text = "" if since is None else f"{datetime.fromtimestamp(since, UTC):%H:%M:%S} UTC"
    return {"since": since_text, "sampled": MAX_QUEUES}


def _position(index: int, *, rising: bool) -> int:
    """Return the position in the list; from the tail it is negative, so pushes do not change it."""
    return -index - 1 if rising else index


def pause(context: RequestContext) -> Redirect:
    """Pause a queue for jobwire's workers."""
    queue = context.field("queue")
    new = context.operations.pause(queue)
    return Redirect(context.back(), f"{text(queue)} {'is' if new else 'was already'} paused")


def unpause(context: RequestContext) -> Redirect:
    """Resume a paused queue."""
    queue = context.field("queue")
    new = context.operations.unpause(queue)
    return Redirect(
        context.back(), f"{text(queue)} {'is served again' if new else 'was not paused'}"
    )
