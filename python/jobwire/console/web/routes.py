"""The table of pages and actions: every address of the application is here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from starlette.responses import Response

from jobwire.console.web.context import Page, Redirect, RequestContext
from jobwire.console.web.pages import (
    batches,
    bulk,
    busy,
    changes,
    classes,
    doctor,
    entries,
    failures,
    held,
    iterations,
    job,
    journal,
    limits,
    locks,
    overview,
    parked,
    periodic,
    queues,
    search,
    stats,
)
from jobwire.console.web.places import BY_PATH
from jobwire.inspect.fleet import Fleet

__all__ = ["ACTIONS", "MENU", "PAGES", "Action", "Address", "Do", "MenuItem", "Show"]

Show = Callable[[RequestContext], Page | Redirect | Response]
Do = Callable[[RequestContext], Redirect | Page]


class Address(NamedTuple):
    """A page: its path and the function that shows it. A visitor of any role may see it."""

    path: str
    show: Show


class Action(NamedTuple):
    """An action at `/acts/<name>`: the command layer checks the role."""

    name: str
    do: Do


@dataclass(frozen=True, slots=True)
class MenuItem:
    """An item of the menu.

    Attributes:
        path: Path of its page.
        label: Its label.
        count: Returns the number that it shows.
        rare: True to leave it out if the number is 0.
        begins: True to separate it from the items before it.
    """

    path: str
    label: str
    count: Callable[[Fleet], int] | None = None
    rare: bool = False
    begins: bool = False


PAGES: Sequence[Address] = (
    Address("/", overview.show),
    Address("/busy", busy.show),
    Address("/queues", queues.show_all),
    Address("/queues/{name:path}", queues.show),
    *(
        address
        for path in BY_PATH
        for address in (
            Address(f"/{path}", entries.show(path)),
            Address(f"/{path}/{{key:path}}", job.show_entry(path)),
        )
    ),
    Address("/morgue", entries.morgue),
    Address("/held", held.show),
    Address("/jobs/{jid:path}", job.show),
    Address("/failures", failures.show),
    Address("/classes", classes.show_all),
    Address("/classes/{name:path}", classes.show),
    Address("/iterations", iterations.show),
    Address("/locks", locks.show),
    Address("/parked", parked.show),
    Address("/limits", limits.show),
    Address("/batches", batches.show_all),
    Address("/batches/{id:path}", batches.show),
    Address("/periodic", periodic.show_all),
    Address("/periodic/{name:path}", periodic.show),
    Address("/search", search.show),
    Address("/stats", stats.stats),
    Address("/stats/queues", stats.queues),
    Address("/stats/periodic", stats.periodic),
    Address("/dashboard/stats", stats.old_stats),
    Address("/metrics", stats.metrics),
    Address("/bulk", bulk.show),
    Address("/changes", changes.show_all),
    Address("/changes/{id}", changes.show_one),
    Address("/doctor", doctor.show),
    Address("/journal", journal.show),
)

ACTIONS: Sequence[Action] = (
    Action("retry", entries.act_on_each("retry")),
    Action("add_to_queue", entries.act_on_each("add_to_queue")),
    Action("kill", entries.act_on_each("kill")),
    Action("delete", entries.delete),
    Action("reschedule", entries.reschedule),
    Action("pause", queues.pause),
    Action("unpause", queues.unpause),
    Action("quiet", busy.signal("quiet")),
    Action("stop", busy.signal("stop")),
    Action("dump", busy.signal("dump")),
    Action("cancel", iterations.cancel),
    Action("unpark", parked.unpark),
    Action("unlock", locks.unlock),
    Action("cancel_batch", batches.cancel),
    Action("mark_deploy", overview.mark),
    Action("enable_periodic", periodic.enable),
    Action("disable_periodic", periodic.disable),
    Action("enqueue_periodic", periodic.enqueue),
    Action("remove_periodic", periodic.remove),
    Action("bulk", bulk.start),
    Action("stop-change", bulk.stop),
    Action("undo", changes.undo),
)

MENU: Sequence[MenuItem] = (
    MenuItem("", "Overview"),
    MenuItem("queues", "Queues", lambda fleet: fleet.enqueued, begins=True),
    MenuItem("busy", "Busy", lambda fleet: sum(process.busy for process in fleet.processes)),
    MenuItem("held", "Fetched"),
    MenuItem("iterations", "Iterations"),
    MenuItem("batches", "Batches"),
    MenuItem("limits", "Limits"),
    MenuItem("locks", "Locks"),
    MenuItem("periodic", "Periodic"),
    MenuItem("retries", "Retries", lambda fleet: fleet.sets["retry"], begins=True),
    MenuItem("scheduled", "Scheduled", lambda fleet: fleet.sets["scheduled"]),
    MenuItem("dead", "Dead", lambda fleet: fleet.sets["dead"]),
    MenuItem("unreadable", "Unreadable", lambda fleet: fleet.sets["unreadable"], rare=True),
    MenuItem("parked", "Parked", lambda fleet: fleet.sets["parked"], rare=True),
    MenuItem("failures", "Failures", begins=True),
    MenuItem("classes", "Classes"),
    MenuItem("search", "Search"),
    MenuItem("doctor", "Doctor", begins=True),
    MenuItem("changes", "Changes"),
    MenuItem("journal", "Journal"),
)
