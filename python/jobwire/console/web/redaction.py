"""Redaction: the parts of a job that a visitor does not see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jobwire.console.web.access import Visitor

__all__ = ["HIDDEN", "Redact", "hide_arguments"]

HIDDEN = "[hidden]"

Redact = Callable[[Visitor, Mapping[str, Any]], Mapping[str, Any]]
"""Returns the fields of a payload that a visitor sees; the page shows nothing else of the job.

Given a redaction, the page shows no payload as stored, and does not search in the text of payloads
or in errors: a search would tell what is in the hidden part. Data of a job outside its payload is
given as further fields: `cursor` of an iterable job, and `value` of a result.
"""

# Fields that describe a job, and hold no data of its author. Extensions copy arguments into fields
# of their own, so a list of the fields to hide would miss some.
PLAIN = frozenset(
    {
        *("class", "wrapped", "display_class", "jid", "queue", "tags", "bid", "locale", "dead"),
        *("retry", "retry_count", "retry_for", "retry_queue", "backtrace", "interrupted_count"),
        *("created_at", "enqueued_at", "failed_at", "retried_at", "discarded_at", "at"),
        *("error_class", "expires_in", "unique_for", "unique_until", "encrypt", "compressed"),
        *("log_level", "original_job_size_bytes"),
    }
)


def hide_arguments(visitor: Visitor, fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """Hide arguments, error messages, backtraces and unknown fields from viewers; a `Redact`.

    Error messages are hidden as well, because many of them quote an argument.
    """
    if visitor.role != "viewer":
        return fields
    return {name: value if name in PLAIN else HIDDEN for name, value in fields.items()}
