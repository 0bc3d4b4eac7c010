"""Jobs that wait for Redis, in the order of their pushes. [PUSH-9]"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from jobwire.errors import BufferFull
from jobwire.protocol.normalize import ReadyPayload
from jobwire.text import counted

__all__ = ["HeldJobs"]

S = TypeVar("S")


class _Held(NamedTuple, Generic[S]):
    job: ReadyPayload
    since: float
    source: S
    counts: bool


class HeldJobs(Generic[S]):
    """A bounded queue of jobs, each with the time since which it waits and the place it is kept in.

    Args:
        max_jobs: The largest number of jobs, without those that another process has left.
        max_bytes: The largest sum of their payloads.
    """

    def __init__(self, max_jobs: int, max_bytes: int) -> None:
        self._most, self._most_bytes = max_jobs, max_bytes
        self._jobs: deque[_Held[S]] = deque()
        self.bytes = 0
        self._counted = self._counted_bytes = 0

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def since(self) -> float | None:
        """Epoch seconds at which the oldest job was pushed; None without a job."""
        return self._jobs[0].since if self._jobs else None

    @property
    def source(self) -> S | None:
        """The place that the oldest job is kept in; None without a job."""
        return self._jobs[0].source if self._jobs else None

    def check(self, jobs: Sequence[ReadyPayload]) -> None:
        """Check that there is room for jobs.

        Raises:
            BufferFull: There is not, for all of them together.
        """
        size = sum(len(job.text) for job in jobs)
        if self._counted + len(jobs) > self._most or self._counted_bytes + size > self._most_bytes:
            raise BufferFull(
                f"Redis is away, and the buffer has no room for {counted(len(jobs), 'job')} of "
                f"{size:,} bytes: it holds {self._counted:,} of {self._most:,} jobs and "
                f"{self._counted_bytes:,} of {self._most_bytes:,} bytes (max_jobs, max_bytes of "
                "PushBuffer); nothing was written"
            )

    def add(
        self, jobs: Sequence[ReadyPayload], *, since: float, source: S, counts: bool = True
    ) -> None:
        """Add jobs at the end, whether there is room or not.

        Args:
            jobs: The jobs.
            since: Epoch seconds of their push.
            source: The place that they are kept in.
            counts: False for jobs that take no room from others.
        """
        for job in jobs:
            self._jobs.append(_Held(job, since, source, counts))
            self.bytes += len(job.text)
            if counts:
                self._counted += 1
                self._counted_bytes += len(job.text)

    def first(self, most: int, most_bytes: int) -> tuple[list[ReadyPayload], S]:
        """Return the oldest jobs that are kept in one place, and the place. There must be a job.

        Args:
            most: The largest number of jobs.
            most_bytes: The largest sum of their payloads, unless there is only one.
        """
        source = self._jobs[0].source
        found: list[ReadyPayload] = []
        size = 0
        for held in islice(self._jobs, most):
            size += len(held.job.text)
            if held.source is not source or (found and size > most_bytes):
                break
            found.append(held.job)
        return found, source

    def sources(self) -> set[S]:
        """Return all places."""
        return {held.source for held in self._jobs}

    def drop(self, count: int) -> None:
        """Forget the oldest jobs."""
        for _ in range(count):
            held = self._jobs.popleft()
            self.bytes -= len(held.job.text)
            if held.counts:
                self._counted -= 1
                self._counted_bytes -= len(held.job.text)
