"""Acts on periodic jobs."""

from __future__ import annotations

from jobwire.console.web.pages.periodic import found
from jobwire.console.web.visit import Redirect, Visit
from jobwire.inspect.reading import text

__all__ = ["disable", "enable", "enqueue", "remove"]


def enable(visit: Visit) -> Redirect:
    """Let the ticks of an entry be taken from now on."""
    name = visit.field("name")
    changed = visit.operations.periodic().enable(found(visit, name))
    return Redirect(visit.back(), f"{text(name)} {_told(changed, 'enabled')}")


def disable(visit: Visit) -> Redirect:
    """Leave the ticks of an entry out until it is enabled."""
    name = visit.field("name")
    changed = visit.operations.periodic().disable(found(visit, name))
    return Redirect(visit.back(), f"{text(name)} {_told(changed, 'disabled')}")


def enqueue(visit: Visit) -> Redirect:
    """Enqueue the job of an entry now."""
    name = visit.field("name")
    jid = visit.operations.periodic().enqueue(found(visit, name))
    return Redirect(visit.back(), f"{text(name)}: enqueued as {jid}")


def remove(visit: Visit) -> Redirect:
    """Remove an entry with its history."""
    name = visit.field("name")
    removed = visit.operations.periodic().remove(found(visit, name))
    return Redirect(visit.path("periodic"), f"{text(name)} {'removed' if removed else 'was gone'}")


def _told(changed: bool | None, state: str) -> str:
    if changed is None:
        return "was gone"
    return f"is {state}" if changed else f"was {state} already"
