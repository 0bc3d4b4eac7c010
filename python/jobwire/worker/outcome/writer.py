"""The sink of reliable fetch: stores outcomes that no fetch carries. [REL-2] [ENV-6]"""

from __future__ import annotations

import threading

from jobwire.errors import RedisTrouble
from jobwire.protocol.outcome import DONE, Outcome
from jobwire.protocol.reliable import InFlightJob
from jobwire.worker.base.ticker import PeriodicChecks
from jobwire.worker.base.timings import Timings
from jobwire.worker.outcome.immediate_sink import ExecutionCounts
from jobwire.worker.outcome.outbox import Entry, Outbox

__all__ = ["OutcomeWriter"]


_NONE = InFlightJob("", "", b"")


class OutcomeWriter:
    """The `OutcomeSink` of a process with reliable fetch. It has no thread: the ticker calls it.

    Args:
        outbox: Where outcomes wait for a fetch, or for this writer.
        ticker: Calls this writer.
        timings: How long outcomes wait.
        counts: Counts the failures of jobs that were acknowledged before they ran.
    """

    def __init__(
        self,
        outbox: Outbox,
        ticker: PeriodicChecks,
        timings: Timings,
        counts: ExecutionCounts | None = None,
    ) -> None:
        self._outbox = outbox
        self._counts = counts or ExecutionCounts()
        self._ticker = ticker
        self._tick = timings.tick
        self._look_interval = timings.outcome_retry_interval
        self._closed = threading.Event()
        ticker.add_periodic_check(self._check)

    @property
    def unstored(self) -> int:
        """Number of outcomes that are not stored."""
        return self._outbox.unstored

    def record(self, held: InFlightJob, outcome: Outcome) -> None:
        """Store an outcome with the next fetch, or soon after the next `flush_soon`."""
        self._outbox.add(Entry(held, outcome))

    def store(self, held: InFlightJob, outcome: Outcome) -> bool:
        """Store an outcome and wait for it; return whether the job was still held."""
        entry = Entry(held, outcome, stored := threading.Event())
        self._outbox.add(entry)
        self._ticker.wake()
        while not stored.wait(self._look_interval):
            if self._closed.is_set():
                return False
        return not entry.lost

    def ran(self, *, failed: bool, rest: Outcome = DONE) -> None:
        """Count the end of a job that was acknowledged, and so counted, before it ran."""
        self._outbox.flush_log()
        self._counts.add(failed=failed, counted=True)
        if rest.result is not None:
            self._outbox.add(Entry(_NONE, Outcome(result=rest.result)))
        if rest.unlocks is not None or rest.after:
            unlocked = Outcome(unlocks=rest.unlocks, after=rest.after, beside=rest.beside)
            self._outbox.add(Entry(_NONE, unlocked))
        if rest.output is not None:
            self._outbox.add(Entry(_NONE, Outcome(output=rest.output)))
        if rest.next is not None:
            self._outbox.add(Entry(_NONE, Outcome(next=rest.next)))
        if rest.ended is not None:
            self._outbox.add(Entry(_NONE, Outcome(ended=rest.ended)))

    def flush_soon(self) -> None:
        """Do not let recorded outcomes wait for a fetch."""
        self._ticker.wake()

    def close(self, timeout: float) -> int:
        """Wait until everything is stored; return how many outcomes are not at the timeout."""
        self._ticker.wake()
        left = self._outbox.wait_stored(timeout)
        self._closed.set()
        return left

    def _check(self) -> float | None:
        """Send overdue outcomes; return in how many seconds to check again."""
        try:
            delays = [self._outbox.send_overdue(self._tick), self._outbox.send_failed()]
        except RedisTrouble:
            return self._tick  # the outbox keeps the outcomes and has reported the error
        return min((delay for delay in delays if delay is not None), default=None)
