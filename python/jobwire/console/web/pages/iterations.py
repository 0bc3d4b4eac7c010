"""The page of iterable jobs: how far those are that run, or wait; the action on them."""

from __future__ import annotations

from jobwire.console.web.context import Page, Redirect, RequestContext
from jobwire.console.web.redaction import HIDDEN
from jobwire.inspect.display import CANCELLED
from jobwire.inspect.entry import Entry
from jobwire.inspect.progress import IterationState
from jobwire.inspect.reading import text

__all__ = ["cancel", "show"]

EXAMINED = 200  # at most, of the jobs that have run longest, and of the retries due next
MAX_JOBS = 100


def show(context: RequestContext) -> Page:
    """Show the states of the jobs that run, and of the retries that are due next.

    Looking for all states would need a walk through every key of the server.
    """
    states = context.shared("iterations", lambda: _states(context))
    shown = [
        (state, entry, words, _cursor(context, state, entry)) for state, entry, words in states
    ]
    return Page("iterations.html", {"title": "Iterations", "states": shown, "due": EXAMINED})


def _cursor(context: RequestContext, state: IterationState, entry: Entry) -> str:
    """Return the position as the visitor may see it: it may be data of the job."""
    fields = context.visible_fields({**entry.fields, "cursor": state.cursor})
    return str(fields.get("cursor", HIDDEN))


def _states(context: RequestContext) -> list[tuple[IterationState, Entry, str]]:
    inspector = context.operations.inspector
    retries = context.operations.page("retry", count=EXAMINED, rising=True).entries
    found: dict[str, tuple[Entry, str]] = {
        entry.jid: (entry, "waits for its next attempt") for entry in retries if entry.jid
    }
    for work in context.operations.running(count=EXAMINED).works:
        if work.job.jid:
            found[work.job.jid] = (work.job, "runs")
    readable = [jid for jid in found if jid.isprintable()]
    states = inspector.iterations(readable)
    return [(state, *found[state.jid]) for state in states][:MAX_JOBS]


def cancel(context: RequestContext) -> Redirect:
    """Cancel a job."""
    jid = context.field("jid")
    outcome = CANCELLED[context.operations.cancel(jid).place]
    return Redirect(context.back(), f"{text(jid)} {outcome}")
