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
        job: What the job's code gets, which it may change.
        compiled: How it runs.
        began_at: Epoch seconds; of a job that a task runs, when it went to the loop.
        seconds: How long the job's code ran; 0 until it ended.
        logged: Whether its start is in the log, so that its end will be.
    """

    held: InFlightJob
    job: Job
    compiled: CompiledJob
    began_at: float
    seconds: float = 0.0
    logged: bool = False
