"""The interface of the outcome sink, for the code that runs jobs."""

from __future__ import annotations

from typing import Protocol

from jobwire.protocol.outcome import DONE, Outcome
from jobwire.protocol.reliable import InFlightJob

__all__ = ["OutcomeSink"]


class OutcomeSink(Protocol):
    """Stores the outcomes of jobs. One per process."""

    def record(self, held: InFlightJob, outcome: Outcome) -> None:
        """Store the outcome of a job, at once or soon."""

    def store(self, held: InFlightJob, outcome: Outcome) -> bool:
        """Store an outcome and wait for that; return True if the job was still held."""

    def ran(self, *, failed: bool, rest: Outcome = DONE) -> None:
        """Count the end of a job that was acknowledged before it ran.

        Of `rest`, its result is stored, its lock released, its next job pushed, and its
        end in its batch stored.
        """

    def flush_soon(self) -> None:
        """Do not let recorded outcomes wait for a fetch.

        Nothing to do for a sink whose `record` stores at once, which is the default.
        """
        return
