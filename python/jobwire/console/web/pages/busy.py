"""The page of processes and of the jobs that they run; the actions on processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from jobwire.console.ops.doctor import SILENT_S
from jobwire.console.web.context import Page, Redirect, RequestContext
from jobwire.inspect.reading import text
from jobwire.protocol.heartbeat import LEASE_S
from jobwire.text import counted

__all__ = ["show", "signal"]

PER_PAGE = 50
MAX_GIVEN_UP = 20


def show(context: RequestContext) -> Page:
    """Show the processes, and the jobs in execution, the longest running ones first."""
    processes = context.site.fleet().processes
    start = context.number("from", 1, most=10**6) - 1
    running = context.number("running", 1, most=10**6) - 1
    page = context.shared(
        f"running {running}", lambda: context.operations.running(start=running, count=PER_PAGE)
    )
    return Page(
        "busy.html",
        {
            "title": "Busy",
            "processes": processes[start : start + PER_PAGE],
            "start": start,
            "total": len(processes),
            "works": [
                (work, context.job(work.job), context.progress(work.progress, work.job.fields))
                for work in page.works
            ],
            "running": running,
            "jobs": page.total,
            "step": PER_PAGE,
            "silent": SILENT_S,
            "lease": LEASE_S,
            "given_up": context.shared("given up", context.operations.given_up)[:MAX_GIVEN_UP],
        },
    )


WORDS = {
    "quiet": "will fetch no more",
    "stop": "will end",
    "dump": "will log the work of its threads",
}


def signal(act: Literal["quiet", "stop", "dump"]) -> Callable[[RequestContext], Redirect]:
    """Return the action that signals one process, or with `*` all that are not embedded."""

    def do(context: RequestContext) -> Redirect:
        identity = context.field("identity")
        send = getattr(context.operations, act)
        if identity != "*":
            send(identity)
            return Redirect(context.back(), f"{text(identity)} {WORDS[act]}")
        processes = context.operations.inspector.processes()
        free = [process.identity for process in processes if not process.embedded]
        for each in free:
            send(each)
        return Redirect(context.back(), f"{counted(len(free), 'process')} told: {act}")

    return do
