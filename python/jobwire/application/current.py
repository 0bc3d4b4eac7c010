"""The job that this thread or task runs, and its progress."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jobwire.protocol import gitlab
from jobwire.protocol.payload import Job
from jobwire.protocol.progress import checked

__all__ = ["current", "current_job", "inherited", "report_progress", "running"]

current: ContextVar[Job | None] = ContextVar("jobwire_current_job", default=None)


def current_job() -> Job | None:
    """Return the job that runs in this thread or task; None outside a worker."""
    return current.get()


def inherited(fields: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the fields of a new job with those that the running job passes on. [X-ADDON-15]"""
    job = current.get()
    if job is None or gitlab.CORRELATION_ID not in job.fields:
        return fields
    return {**gitlab.inherited(job), **(fields or {})}


def report_progress(done: int | float, total: int | float | None = None, note: str = "") -> None:
    """Tell people how far the running job is; outside a job, do nothing. [X-PROG-1]

        for number, row in enumerate(rows, 1):
            import_row(row)
            report_progress(number, len(rows), "rows")

    The call only keeps the newest report in this process. The next heartbeat of the worker writes
    it to Redis, so it may be called for every row.

    Args:
        done: The part of the work that is done, in any unit.
        total: The whole work in the same unit; None if it is not known.
        note: A short text, cut to 200 characters.

    Raises:
        InvalidArgument: A number or the note has another type or range.
    """
    job = current.get()
    progress = checked(done, total, note, at=time.time())
    if job is not None:
        job.progress = progress


@contextmanager
def running(job: Job) -> Iterator[None]:
    """Make `job` the current job inside a `with` block."""
    token = current.set(job)
    try:
        yield
    finally:
        current.reset(token)
