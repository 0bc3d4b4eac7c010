"""Payloads of jobs that failed or wait, for the tests of the page and of the terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

AT = 1_795_192_067.25
DUE = 4_000_000_000.25  # of retries, so that no poller takes them


def payload(class_name: str, jid: str, **fields: Any) -> bytes:
    """Return a payload of queue `mails`."""
    job: dict[str, Any] = {"class": class_name, "args": [7, "x"], "jid": jid, "queue": "mails"}
    times = {"retry": True, "created_at": int(AT * 1000), "enqueued_at": int(AT * 1000)}
    return json.dumps({**job, **times, **fields}).encode()


def failure(error: str = "ValueError", *, count: int = 3) -> Mapping[str, Any]:
    """Return the fields that a failure adds."""
    return {
        "error_class": error,
        "error_message": "order 12 is <not> there",
        "error_backtrace": ["app/invoices.py:12:in `charge'", "app/jobs.py:7:in `run'"],
        "failed_at": int(AT * 1000),
        "retry_count": count,
    }
