"""Acts on iterable jobs and on the charts."""

from __future__ import annotations

from jobwire.console.web.visit import Redirect, Visit
from jobwire.errors import ConfigError
from jobwire.inspect.display import CANCELLED
from jobwire.inspect.reading import text

__all__ = ["cancel", "mark_deploy"]

MOST_LABEL = 100  # characters


def cancel(visit: Visit) -> Redirect:
    """Cancel a job."""
    jid = visit.field("jid")
    told = CANCELLED[visit.operations.cancel(jid).place]
    return Redirect(visit.back(), f"{text(jid)} {told}")


def mark_deploy(visit: Visit) -> Redirect:
    """Mark a deployment in the charts."""
    label = visit.field("label").strip()
    if not label or len(label) > MOST_LABEL:
        raise ConfigError(f"label: write 1 to {MOST_LABEL} characters, such as a version")
    new = visit.operations.mark_deploy(label)
    told = "marked" if new else "not marked: there was a mark within the last minute"
    return Redirect(visit.back(), f"Deployment {label!r} {told}")
