"""One execution of a job, from its start to the record of its outcome."""

from __future__ import annotations

import logging

import msgspec

from jobwire.protocol.batches import BATCH
from jobwire.protocol.chains import NEXT
from jobwire.protocol.expiry import EXPIRES_AT, SNOOZES
from jobwire.protocol.gitlab import CORRELATION_ID, IDEMPOTENCY_KEY, STATUS_EXPIRATION
from jobwire.protocol.limits import LIMIT
from jobwire.protocol.payload import Job
from jobwire.protocol.reliable import InFlightJob
from jobwire.protocol.results import KEEP
from jobwire.protocol.ruby_locks import LOCK_DIGEST
from jobwire.protocol.unique import UNIQUE
from jobwire.worker.execute.compiled_job import CompiledJob

__all__ = ["FEATURES", "Execution"]

FEATURES = frozenset(
    [
        *(BATCH, CORRELATION_ID, EXPIRES_AT, IDEMPOTENCY_KEY, KEEP, LIMIT, LOCK_DIGEST, NEXT),
        *("retry_count", SNOOZES, STATUS_EXPIRATION, UNIQUE),
    ]
)
"""The payload fields that may change how a job starts, or how it ends if it returns.

Most jobs have none of them: one look at them all keeps what a job does not use off its way.
"""


class Execution(msgspec.Struct, eq=False, gc=False):  # quicker to make than a dataclass
    """One execution.

    Attributes:
        held: The job as it was fetched.
        job: The job as its own code sees it; that code may change it.
        compiled: How to run the job.
        began_at: Epoch seconds; for a job that a task runs, the time at which the loop got it.
        seconds: Run time of the job's code; 0 until it ended.
        plain: True if the end of a job that returns is `DONE`, unless its own code asked for more:
            it has none of `FEATURES`, and has not been held before.
        logged: True if the start is in the log, so that the end is logged as well.
        acknowledged: True if the job has ended in Redis before it runs, so that nothing brings it
            back.
        recorded: True if the outcome of a job that a task runs is recorded.
        has_status: True if its status is written in the form of sidekiq-status.
        waiter: Key of the list for those who wait for a job of GitLab; "" for none.
    """

    held: InFlightJob
    job: Job
    compiled: CompiledJob
    began_at: float
    seconds: float = 0.0
    plain: bool = False
    logged: bool = False
    acknowledged: bool = False
    recorded: bool = False
    has_status: bool = False
    waiter: str = ""

    @property
    def cancellable(self) -> bool:
        """True if the job ends by this process's mark; an iterable job reads its state. [ITER-7]"""
        definition = self.compiled.definition
        return definition is None or definition.iterable is None

    def log_interruption(self, log: logging.Logger) -> None:
        """Log that a stop of the worker has interrupted the job."""
        if self.acknowledged:
            log.error("interrupted; it does not run again, because redeliver is false")
        else:
            log.warning("interrupted; the job was put back and will run again")
