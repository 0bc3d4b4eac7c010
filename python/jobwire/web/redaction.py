"""Redaction: the parts of a job that a visitor does not see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jobwire.web.access import Visitor

__all__ = ["HIDDEN", "Redact", "hide_arguments"]

HIDDEN = "[hidden]"

Redact = Callable[[Visitor, Mapping[str, Any]], Mapping[str, Any]]
"""Returns the fields of a payload that a visitor sees; the page shows nothing else of the job.

Given a redaction, the page shows no payload as stored, and does not search in the text of payloads:
a search would tell what is in the hidden part.
"""


def hide_arguments(visitor: Visitor, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Hide arguments, error messages and backtraces from viewers; a `Redact`.

    Error messages are hidden as well, because many of them quote an argument.
    """
    if visitor.role != "viewer":
        return fields
    hidden = {"args", "error_message", "error_backtrace", "cattr"}
    return {name: HIDDEN if name in hidden else value for name, value in fields.items()}
