"""The page of one job: its place, the reason that it does not run, and its data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jobwire.console.ops.explain import Explanation
from jobwire.console.ops.locate import JobLocation
from jobwire.console.ops.results import StoredResult
from jobwire.console.web.context import Absent, Page, RequestContext
from jobwire.console.web.jobs import JobView, entry_key, split_key
from jobwire.console.web.pages.entries import entry_of
from jobwire.console.web.places import BY_PATH, SETS
from jobwire.console.web.redaction import HIDDEN, hide_arguments
from jobwire.inspect.entry import QUEUE, Entry
from jobwire.protocol.batches import BATCH, batch_of
from jobwire.protocol.chains import BEFORE, NEXT, steps
from jobwire.protocol.groups import GATHERS, GROUP
from jobwire.protocol.limits import LIMIT, limit_of

__all__ = ["show", "show_entry"]

EXAMINED = 1_000  # jobs of each queue and entries of each set, so that the page is quick
IN_QUEUES = 20_000  # jobs of all queues together
MAX_LINES = 100  # of a backtrace
KNOWN = {
    *("class", "args", "jid", "queue", "retry", "created_at", "enqueued_at", "failed_at"),
    *("retried_at", "retry_count", "error_class", "error_message", "error_backtrace", "tags"),
    *("wrapped", "display_class", "at", BATCH, BEFORE, NEXT, GROUP, GATHERS),
}


@dataclass(frozen=True, slots=True)
class Place:
    """One place of a job.

    Attributes:
        where: Its name, in words.
        job: The job there.
        path: Path of the page of the place, or "".
        acts: Actions that are possible there.
        name: Name of the entry for forms.
        facts: Further facts by name.
    """

    where: str
    job: JobView
    path: str
    acts: tuple[str, ...]
    name: str
    facts: dict[str, Any]


def show(context: RequestContext) -> Page:
    """Show a job by its id, wherever it is."""
    jid = context.name()
    operations = context.operations
    known = _seen_in_queue(context)
    if known is not None:
        return _page(context, jid, operations.explain(jid, known=known))
    if context.asked("all"):
        return _page(context, jid, operations.explain(jid))
    return _page(context, jid, _quickly(context, jid))


def _quickly(context: RequestContext, jid: str) -> Explanation:
    return context.operations.explain(jid, examine=EXAMINED, in_sets=EXAMINED, in_queues=IN_QUEUES)


def show_entry(path: str) -> Callable[[RequestContext], Page]:
    """Return the page of one entry of a set, which its address names."""
    shown = BY_PATH[path]

    def page(context: RequestContext) -> Page:
        parts = split_key(context.name())
        if parts is None:
            raise Absent(f"unknown entry {context.name()!r}; expected <score>-<job id>")
        entry = entry_of(context, shown, *parts)
        known = JobLocation(shown.name, entry, queue=entry.queue)
        explained = context.operations.explain(entry.jid or "", known=known)
        return _page(context, entry.jid or "", explained)

    return page


def _page(context: RequestContext, jid: str, explained: Explanation) -> Page:
    places = [_place(context, one) for one in explained.places]
    first = places[0].job if places else None
    fields: Mapping[str, Any] = first.entry.fields if first else {}
    stored = context.operations.result(jid) if jid else None
    reported = context.operations.progress(jid) if jid else None
    status = context.operations.ruby_status(jid) if jid else None
    items = context.operations.output(jid) if jid else []
    incomplete = any(reason.code == "search-incomplete" for reason in explained.reasons)
    return Page(
        "job.html",
        {
            "title": "Job",
            "jid": jid,
            "reasons": explained.reasons,
            "places": places,
            "job": first,
            "timeline": sorted(_timeline(first.entry), key=lambda event: event[1]) if first else [],
            "others": {name: value for name, value in fields.items() if name not in KNOWN},
            "backtrace": (first.entry.error_backtrace or []) if first else [],
            "most_lines": None if context.asked("lines") == "all" else MAX_LINES,
            "incomplete": incomplete and not context.asked("all"),
            "group": _group(context, first),
            "chain": steps(fields),
            "batch": batch_of(fields),
            "limit": limit_of(fields.get(LIMIT)),
            "members": context.operations.group_members(fields),
            "result": stored,
            "output": [context.seen_item(item.value) for item in items],
            "after": items[-1].position if items else "",
            # One that waits for longer would hold a stream for nothing.
            "may_emit": any(
                one.place in ("held", "running") or one.place.startswith("queue:")
                for one in explained.places
            ),
            "progress": context.progress(reported, fields),
            "status": status,
            "status_progress": context.progress(status.progress, fields) if status else None,
            "seen_result": _seen_result(context, stored, fields) if stored else {},
        },
        status=200 if places or stored or reported or items or status else 404,
    )


def _seen_result(
    context: RequestContext, stored: StoredResult, fields: Mapping[str, Any]
) -> Mapping[str, Any]:
    """Return the parts of a result that the visitor sees, asked for as fields of its job.

    The class of a job that has ended is not known. So only a redaction that does not look at the
    class can decide.
    """
    result = stored.result
    parts = {"error_message": result.error_message, "problem": result.problem}
    parts |= {"value": result.value} if result.outcome == "done" and not result.problem else {}
    if not fields and context.site.redact not in (None, hide_arguments):
        return dict.fromkeys(parts, HIDDEN)
    seen = context.visible_fields({**fields, **parts})
    return {name: seen.get(name, HIDDEN) for name in parts}


def _seen_in_queue(context: RequestContext) -> JobLocation | None:
    """Return the place in a queue where the last page has shown the job, if it is still near."""
    queue, position = context.query.get("queue", ""), context.asked("position")
    if not queue or not position.removeprefix("-").isdigit():
        return None
    entry = context.job_near(queue, int(position), context.asked("digest"))
    if entry is None or entry.jid != context.name():
        return None
    ahead = -int(position) - 1 if position.startswith("-") else None
    return JobLocation(QUEUE + queue, entry, ahead=ahead, queue=queue)


def _place(context: RequestContext, one: JobLocation) -> Place:
    job = context.job(one.job)
    facts: dict[str, Any] = {}
    if one.identity:
        facts["Process"] = one.identity
    if one.thread:
        facts["Thread"] = one.thread
    if one.lease is not None:
        facts["Lease of the process ends in"] = f"{one.lease:.0f} s"
    if one.ahead is not None:
        facts["Jobs before it"] = f"{one.ahead:,}"
    for name, page in SETS.items():
        if one.place == name:
            acts = (*page.acts, *(("reschedule",) if name in ("retry", "schedule") else ()))
            entry_name = f"{entry_key(one.job)} {job.digest}"
            return Place(page.title, job, context.path(page.path), acts, entry_name, facts)
    if one.place.startswith(QUEUE):
        path = context.path("queues", one.queue)
        return Place(f"Queue {one.queue}", job, path, (), "", facts)
    words = {"held": "Fetched", "running": "Running"}
    path = context.path("held" if one.place == "held" else "busy")
    return Place(words.get(one.place, one.place), job, path, (), "", facts)


def _timeline(entry: Entry) -> Iterator[tuple[str, float]]:
    """Yield what happened to a job, with epoch seconds."""
    words = {
        "Created": entry.created_at,
        "Enqueued": entry.enqueued_at,
        "Failed first": entry.failed_at,
        "Failed last": entry.retried_at,
    }
    scores = {"retry": "Next attempt", "schedule": "Due", "dead": "Died", "unreadable": "Set aside"}
    if entry.place in scores and entry.score is not None:
        words[scores[entry.place]] = entry.score
    yield from ((name, at) for name, at in words.items() if at is not None)


def _group(context: RequestContext, job: JobView | None) -> str:
    """Return the path of the failures of the same error in the place of the job, or ""."""
    if job is None or not job.entry.error_class or job.entry.place not in ("retry", "dead"):
        return ""
    path = SETS["retry" if job.entry.place == "retry" else "dead"].path
    if context.site.redact is not None:
        return context.path(path, **{"class": job.entry.class_name})  # messages may be hidden
    return context.path(path, error=f"{job.entry.error_class}:"[:100])
