"""Jobs that come too late, and jobs that ask for more time. [X-TIME-1] to [X-TIME-6]"""

from __future__ import annotations

import math

from jobwire.protocol.payload import Job, edit

__all__ = ["EXPIRES_AT", "SNOOZES", "is_late", "snoozed", "snoozes"]

EXPIRES_AT = "jw_expires_at"  # the payload field [X-TIME-1]
SNOOZES = "jw_snoozes"  # the payload field [X-TIME-5]


def is_late(job: Job, now: float) -> bool:
    """True if a job must not start at epoch second `now`. [X-TIME-2]

    A value that is not a finite number counts as none, so that it drops no job.
    """
    at = job.get(EXPIRES_AT)
    if isinstance(at, bool) or not isinstance(at, int | float):
        return False
    return now >= at if isinstance(at, int) else math.isfinite(at) and now >= at


def snoozes(job: Job) -> int:
    """Return how often a job was put off. [X-TIME-5]"""
    count = job.get(SNOOZES)
    return count if type(count) is int and count > 0 else 0


def snoozed(text: bytes, queue: str, count: int) -> bytes:
    """Return the payload for the schedule, of a job put off for the `count`th time. [X-TIME-4]"""
    return edit(text, {"queue": queue, SNOOZES: count}, drop=("enqueued_at",))
