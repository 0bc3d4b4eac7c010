"""One execution of a job, from its start to the record of its outcome."""

from __future__ import annotations

import msgspec

from jobwire.protocol.payload import Job
from jobwire.protocol.reliable import InFlightJob
from jobwire.worker.execute.compiled_job import CompiledJob

__all__ = ["Execution"]


class Execution(msgspec.Struct, eq=False, gc=False):  # quicker to make than a dataclass
    """One execution.

    Attributes:
        held: The job as it was fetched.
        job: The job as its own code sees it; that code may change it.
        compiled: How to run the job.
        began_at: Epoch seconds; for a job that a task runs, the time at which the loop got it.
        seconds: Run time of the job's code; 0 until it ended.
        logged: True if the start is in the log, so that the end is logged as well.
        recorded: True if the outcome of a job that a task runs is recorded.
    """

    held: InFlightJob
    job: Job
    compiled: CompiledJob
    began_at: float
    seconds: float = 0.0
    logged: bool = False
    recorded: bool = False
