"""The buffer of a capsule: jobs that were fetched and not started, and the slots that they need."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from jobwire.protocol.reliable import InFlightJob

__all__ = ["Buffer", "Slots"]


class Slots:
    """Counts the jobs that run at a time, up to a limit. Not thread-safe: the caller holds a lock.

    Attributes:
        total: The limit.
        in_use: The number of running jobs.
    """

    __slots__ = ("in_use", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.in_use = 0

    @property
    def free(self) -> bool:
        """True if one more job may run."""
        return self.in_use < self.total

    def release(self) -> None:
        """Free the slot of a job that is over.

        Raises:
            RuntimeError: No slot was in use, which is a bug of the caller.
        """
        if not self.in_use:
            raise RuntimeError(f"none of {self.total} slots is in use, so none can be released")
        self.in_use -= 1


class Buffer:
    """Jobs in the order in which they start. Not thread-safe: the caller holds a lock.

    All times are those of the caller's clock, in seconds.

    Args:
        slots: The slots that its jobs occupy.
        lifetime: Seconds after which other processes may have recovered its jobs, so that none
            may start.
    """

    __slots__ = ("_filled_at", "_jobs", "_lifetime", "_slots")

    def __init__(self, slots: Slots, *, lifetime: float) -> None:
        self._slots = slots
        self._lifetime = lifetime
        self._jobs: deque[InFlightJob] = deque()
        self._filled_at = 0.0  # of the oldest job; has a meaning only while there is one

    def __len__(self) -> int:
        return len(self._jobs)

    def take(self, now: float) -> InFlightJob | None:
        """Return the next job, which occupies a slot from now on; None if none may start."""
        jobs, slots = self._jobs, self._slots
        if jobs and slots.in_use < slots.total and now - self._filled_at < self._lifetime:
            slots.in_use += 1
            return jobs.popleft()
        return None

    def add(self, jobs: Iterable[InFlightJob], *, fetched_at: float) -> None:
        """Add jobs that were fetched at that time."""
        if not self._jobs:
            self._filled_at = fetched_at
        self._jobs.extend(jobs)

    def age(self, now: float) -> float | None:
        """Return the waiting time of the oldest job; None if there is none."""
        return now - self._filled_at if self._jobs else None

    def jobs(self) -> list[InFlightJob]:
        """Return all jobs."""
        return list(self._jobs)

    def clear(self) -> list[InFlightJob]:
        """Return all jobs and keep none."""
        jobs = self.jobs()
        self._jobs.clear()
        return jobs
