"""The job that this thread or task runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from jobwire.protocol.payload import Job

__all__ = ["current", "current_job", "running"]

current: ContextVar[Job | None] = ContextVar("jobwire_current_job", default=None)


def current_job() -> Job | None:
    """Return the job that runs in this thread or task; None outside a worker."""
    return current.get()


@contextmanager
def running(job: Job) -> Iterator[None]:
    """Make `job` the current job inside a `with` block."""
    token = current.set(job)
    try:
        yield
    finally:
        current.reset(token)
