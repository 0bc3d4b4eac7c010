"""Actions on processes, which obey at their next heartbeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from jobwire.console.web.context import Redirect, RequestContext
from jobwire.inspect.reading import text
from jobwire.text import counted

__all__ = ["signal"]

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
