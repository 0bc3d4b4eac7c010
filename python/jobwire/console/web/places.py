"""The sets and queues as the pages name them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from jobwire.console.ops.bulk import BulkAction
from jobwire.console.web.context import RequestContext
from jobwire.console.web.jobs import entry_key
from jobwire.inspect.entry import QUEUE, Entry, SetName

__all__ = ["BY_PATH", "SETS", "SetPage", "path_of"]


@dataclass(frozen=True, slots=True)
class SetPage:
    """The page of a set.

    Attributes:
        name: Name of the set.
        path: First part of its path.
        title: Its title.
        time: Heading of the scores.
        acts: Actions on its entries.
        rising: True to show the lowest scores first.
    """

    name: SetName
    path: str
    title: str
    time: str
    acts: tuple[BulkAction, ...]
    rising: bool = False


SETS: Mapping[SetName, SetPage] = MappingProxyType(
    {
        "retry": SetPage(
            *("retry", "retries", "Retries", "Next attempt", ("retry", "kill", "delete")),
            rising=True,
        ),
        "schedule": SetPage(
            *("schedule", "scheduled", "Scheduled", "Due", ("add_to_queue", "delete")),
            rising=True,
        ),
        "dead": SetPage("dead", "dead", "Dead", "Died", ("retry", "delete")),
        "unreadable": SetPage("unreadable", "unreadable", "Unreadable", "Set aside", ("delete",)),
    }
)
BY_PATH: Mapping[str, SetPage] = MappingProxyType({page.path: page for page in SETS.values()})


def path_of(context: RequestContext, entry: Entry) -> str:
    """Return the path of the page of a job, by its place if that can be read quickly."""
    for name, page in SETS.items():
        if entry.place == name:
            return context.path(page.path, entry_key(entry))
    if entry.place.startswith(QUEUE) and not entry.jid:
        return context.path("queues", entry.queue)
    return context.path("jobs", entry.jid or "")
