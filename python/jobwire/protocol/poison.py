"""Jobs that take their process down with them. [REL-10]"""

from __future__ import annotations

from typing import Any

from jobwire.protocol.payload import Job, edit
from jobwire.protocol.retry import Kill
from jobwire.protocol.times import Generation, stamp

__all__ = ["ERROR_CLASS", "MAX_RECOVERIES", "poisoned"]

MAX_RECOVERIES = 3
ERROR_CLASS = "jobwire.PoisonPill"


def poisoned(
    job: Job,
    recovered: int,
    *,
    now: float,
    generation: Generation,
    limit: int = MAX_RECOVERIES,
) -> Kill | None:
    """Decide whether a job just fetched has ended too many processes to be run again. [REL-10]

    Whatever its `retry` and `dead` say: it did not fail, and what crashes workers needs a human.

    Args:
        job: As fetched.
        recovered: How often it was recovered from a process that died: `InFlightJob.recovered`.
        now: Epoch seconds.
        generation: How to write times.
        limit: How many recoveries are all right.

    Returns:
        What to store in the dead set, not counted as an execution; None: run it.
    """
    if recovered <= limit:
        return None
    changes: dict[str, Any] = {
        "error_message": (
            f"not run again: {recovered} processes died while they held this job, "
            f"and {limit} are the limit"
        ),
        "error_class": ERROR_CLASS,
        "failed_at" if job.get("failed_at") is None else "retried_at": stamp(now, generation),
    }
    return Kill(edit(job.text, changes), counted=False)
