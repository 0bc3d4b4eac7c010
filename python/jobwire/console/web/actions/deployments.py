"""Marks of deployments in the charts."""

from __future__ import annotations

from jobwire.console.web.context import Redirect, RequestContext
from jobwire.errors import ConfigError

__all__ = ["mark"]

MAX_LABEL_CHARS = 100


def mark(context: RequestContext) -> Redirect:
    """Mark a deployment in the charts."""
    label = context.field("label").strip()
    if not label or len(label) > MAX_LABEL_CHARS:
        raise ConfigError(f"label: write 1 to {MAX_LABEL_CHARS} characters, such as a version")
    new = context.operations.mark_deploy(label)
    result = "marked" if new else "not marked: there was a mark within the last minute"
    return Redirect(context.back(), f"Deployment {label!r} {result}")
