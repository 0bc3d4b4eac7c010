"""The rules of prefetching, without I/O: number of jobs, the thread that runs them, their return.

Taking more jobs than can run at once saves round trips, and makes jobs wait that other processes
could run. So none is taken ahead before jobs have proved quick, then only as many as should run
within `Timings.prefetch_horizon`. A job that waits longer than `Timings.prefetch_stale` goes back.
[FETCH-12]
"""

from __future__ import annotations

from jobwire.worker.base.timings import DEFAULT_TIMINGS, Timings

__all__ = ["MAX_AHEAD", "Prefetch"]

MAX_AHEAD = 200  # jobs


class Prefetch:
    """Statistics of one capsule's jobs. Not thread-safe: the caller holds a lock.

    `keeps_lead` and `goes_back` read nothing that changes, and need no lock.

    Args:
        slots: How many jobs may run at a time.
        timings: The limits of quick, near and stale.
    """

    __slots__ = (
        "_horizon",
        "_near",
        "_near_reply",
        "_plenty",
        "_quick",
        "_run_time",
        "_slots",
        "_stale",
    )

    def __init__(self, slots: int, timings: Timings = DEFAULT_TIMINGS) -> None:
        self._slots = slots
        self._quick = timings.quick_job
        self._horizon = timings.prefetch_horizon
        self._near_reply = timings.near_reply
        self._stale = timings.prefetch_stale
        self._run_time = 1.0  # seconds, a moving average; nothing ahead until jobs proved quick
        self._plenty = False  # True if the last fetch got all the jobs that it asked for
        self._near = False  # True if its reply came soon

    def ran(self, seconds: float) -> None:
        """Learn from a job that is over."""
        self._run_time += 0.1 * (seconds - self._run_time)

    def wanted(self, *, busy: int, buffered: bool) -> int:
        """Return how many jobs to fetch now; 0 to wait until a slot is free.

        With every slot in use, the next jobs are fetched ahead, so that no slot has to wait for
        a round trip; only if the last fetch was full, so that other processes are not starved.

        Args:
            busy: Slots in use.
            buffered: True if there are jobs that wait for a slot.
        """
        free = max(self._slots - busy, 0)
        if not free and (buffered or not self._plenty):
            return 0
        return free + (self._half if self._run_time < self._quick else self._allowance)

    def wanted_ahead(self, buffered: int) -> int:
        """Return how many jobs to ask for now, although no thread waits for them; mostly 0.

        While one thread runs quick jobs, the server prepares the next ones: half of the jobs
        that may be ahead are in the buffer, the other half on their way.

        Args:
            buffered: Jobs in the buffer.
        """
        if not (self._plenty and self._near and self._run_time < self._quick):
            return 0
        half = self._half
        return 0 if buffered > half else half

    @property
    def _allowance(self) -> int:
        """Number of jobs that may be ahead. Quick jobs run one after the other."""
        side_by_side = 1 if self._run_time < self._quick else self._slots
        return min(int(self._horizon / max(self._run_time, 1e-6) * side_by_side), MAX_AHEAD)

    @property
    def _half(self) -> int:
        return self._allowance // 2

    def got(self, count: int, *, wanted: int, seconds: float) -> None:
        """Learn from a fetch whose reply was read after so many seconds."""
        self._plenty = count == wanted
        self._near = seconds < self._near_reply

    def keeps_lead(self, expected: float) -> bool:
        """True if the leader keeps the lead while it runs a job of so many seconds."""
        return expected < self._quick

    def goes_back(self, waited: float) -> bool:
        """True if a job that has waited so many seconds since its fetch goes back to its queue."""
        return waited > self._stale

    def went_back(self) -> None:
        """Learn that jobs went back, because all slots were in use for too long."""
        self._run_time = max(self._run_time, self._horizon * self._slots)
        self._plenty = False  # nothing is fetched ahead before a slot was free again
