"""Poison pills: jobs that crash their process. [REL-10]"""

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
    """Decide whether a fetched job has crashed too many processes to run again. [REL-10]

    The job's `retry` and `dead` options do not matter: it has not failed, and a person has to look
    at a job that crashes workers.

    Args:
        job: The job as fetched.
        recovered: Number of recoveries from a process that died, `InFlightJob.recovered`.
        now: Epoch seconds.
        generation: Generation of the times to write.
        limit: Number of recoveries that are allowed.

    Returns:
        The payload to put into the dead set, not counted as an execution; None to run the job.
    """
    if recovered <= limit:
        return None
    changes: dict[str, Any] = {
        "error_message": (
            f"not run again: {recovered} processes died while they held this job; "
            f"the limit is {limit}"
        ),
        "error_class": ERROR_CLASS,
        "failed_at" if job.get("failed_at") is None else "retried_at": stamp(now, generation),
    }
    return Kill(edit(job.text, changes), counted=False)
