"""The last progress of jobs that ended since the last heartbeat. [X-PROG-5]"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from jobwire.protocol.payload import Job
from jobwire.protocol.progress import JobProgress

__all__ = ["EndedProgress"]

MAX_JOBS = 1_000  # between two heartbeats; the jobs that ended first are left out


class EndedProgress:
    """Keeps it from the end of a job to the heartbeat that writes it. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: dict[str, JobProgress] = {}

    def add(self, job: Job) -> None:
        """Keep the progress of a job that ends, if it has reported one."""
        if job.progress is None or job.jid is None:
            return
        with self._lock:
            self._last.pop(job.jid, None)  # so that it becomes the newest
            self._last[job.jid] = job.progress
            if len(self._last) > MAX_JOBS:
                del self._last[next(iter(self._last))]

    def waiting(self) -> dict[str, JobProgress]:
        """Return what is not written yet, by job id."""
        with self._lock:
            return self._last.copy()

    def written(self, progress: Mapping[str, JobProgress]) -> None:
        """Forget what was written."""
        with self._lock:
            for jid, one in progress.items():
                if self._last.get(jid) is one:
                    del self._last[jid]
