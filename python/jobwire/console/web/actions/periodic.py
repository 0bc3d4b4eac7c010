"""Actions on periodic jobs."""

from __future__ import annotations

from jobwire.console.web.context import Redirect, RequestContext
from jobwire.console.web.pages.periodic import found
from jobwire.inspect.reading import text

__all__ = ["disable", "enable", "enqueue", "remove"]


def enable(context: RequestContext) -> Redirect:
    """Let the ticks of an entry be taken from now on."""
    name = context.field("name")
    changed = context.operations.periodic().enable(found(context, name))
    return Redirect(context.back(), f"{text(name)} {_told(changed, 'enabled')}")


def disable(context: RequestContext) -> Redirect:
    """Leave the ticks of an entry out until it is enabled."""
    name = context.field("name")
    changed = context.operations.periodic().disable(found(context, name))
    return Redirect(context.back(), f"{text(name)} {_told(changed, 'disabled')}")


def enqueue(context: RequestContext) -> Redirect:
    """Enqueue the job of an entry now."""
    name = context.field("name")
    jid = context.operations.periodic().enqueue(found(context, name))
    return Redirect(context.back(), f"{text(name)}: enqueued as {jid}")


def remove(context: RequestContext) -> Redirect:
    """Remove an entry with its history."""
    name = context.field("name")
    removed = context.operations.periodic().remove(found(context, name))
    return Redirect(
        context.path("periodic"), f"{text(name)} {'removed' if removed else 'was gone'}"
    )


def _told(changed: bool | None, state: str) -> str:
    if changed is None:
        return "was gone"
    return f"is {state}" if changed else f"was {state} already"
