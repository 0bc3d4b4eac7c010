"""How many jobs to take at a time, who runs them, and when to return them: decisions, no I/O.

Taking more than can be run at once saves round trips, and makes jobs wait that others could run.
So nothing is taken ahead before jobs have proved quick, only as much as is expected to be run
within five milliseconds, and what waits all the same goes back after fifty.
"""

from __future__ import annotations

__all__ = ["LIMIT", "NEAR", "QUICK", "SECONDS", "STALE", "Prefetch"]

QUICK = 0.0005  # seconds; a job expected to take less is not worth another thread
SECONDS = 0.005  # how long a job may be expected to wait in the buffer
LIMIT = 200  # jobs
NEAR = 0.01  # seconds until an answer, for jobs to be asked for that nobody waits for
STALE = 0.05  # seconds after which a job that waits in the buffer goes back


class Prefetch:
    """What one capsule knows of its jobs.

    Args:
        slots: How many jobs may run at a time.
    """

    __slots__ = ("_near", "_plenty", "_run_time", "_slots")

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._run_time = 1.0  # seconds, a moving average; nothing ahead until jobs proved quick
        self._plenty = False  # whether the last fetch got all that it wanted
        self._near = False  # whether its answer came soon

    def ran(self, seconds: float) -> None:
        """Learn from a job that is over."""
        self._run_time += 0.1 * (seconds - self._run_time)

    def wanted(self, *, busy: int, buffered: bool) -> int:
        """Return how many jobs to fetch now; 0 to wait until a slot is free.

        With every slot in use, what will be run next is fetched ahead, so that no slot has to
        wait for a round trip; only if there was more than enough, for then others go short of
        nothing.

        Args:
            busy: Slots in use.
            buffered: Whether there are jobs that wait for one.
        """
        free = max(self._slots - busy, 0)
        if not free and (buffered or not self._plenty):
            return 0
        return free + (self._half if self._quick else self._allowance)

    def wanted_meanwhile(self, buffered: int) -> int:
        """Return how many jobs to ask for now, whose arrival nobody waits for; mostly 0.

        While one thread runs quick jobs, the server gets the next ones ready: half of what may
        be ahead is in the buffer, the other half on its way.

        Args:
            buffered: Jobs in the buffer.
        """
        if not (self._quick and self._plenty and self._near) or buffered > self._half:
            return 0
        return self._half

    @property
    def _quick(self) -> bool:
        return self.keeps_turn(self._run_time)

    @property
    def _allowance(self) -> int:
        """How many jobs may be ahead: quick ones are run one after the other."""
        side_by_side = 1 if self._quick else self._slots
        return min(int(SECONDS / max(self._run_time, 1e-6) * side_by_side), LIMIT)

    @property
    def _half(self) -> int:
        return self._allowance // 2

    def got(self, count: int, *, wanted: int, seconds: float) -> None:
        """Learn from a fetch whose answer was read after so many seconds."""
        self._plenty = count == wanted
        self._near = seconds < NEAR

    @staticmethod
    def keeps_turn(expected: float) -> bool:
        """Whether the thread that leads goes on doing so while it runs a job of so many seconds."""
        return expected < QUICK

    @staticmethod
    def goes_back(waited: float) -> bool:
        """Whether what was fetched so many seconds ago and not started goes back to its queue."""
        return waited > STALE

    def went_back(self) -> None:
        """Learn that jobs went back, because all slots were in use for so long."""
        self._run_time = max(self._run_time, SECONDS * self._slots)
        self._plenty = False  # nothing is fetched ahead before a slot was free again
