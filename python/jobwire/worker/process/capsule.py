"""A capsule: some queues, and the threads and tasks that serve only them."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Collection, Sequence

from jobwire.errors import Shutdown
from jobwire.protocol.heartbeat import CapsuleShape, Work
from jobwire.protocol.metrics import Metrics
from jobwire.protocol.ordering import QueueOrder
from jobwire.protocol.reliable import InFlightJob
from jobwire.worker.base.ticker import Ticker
from jobwire.worker.execute.compiled_job import CancelledIds, JobTable
from jobwire.worker.execute.event_loop import AsyncLoop
from jobwire.worker.execute.outcome_policy import OutcomePolicy
from jobwire.worker.execute.processor import Processor
from jobwire.worker.execute.tasks import Tasks
from jobwire.worker.fetch.job_source import JobSource
from jobwire.worker.outcome.sink import OutcomeSink

__all__ = ["Capsule"]

_log = logging.getLogger("jobwire.worker")


class Capsule:
    """Owns the threads and tasks that run the jobs of some queues.

    Args:
        name: Shown by `jobwire inspect` and by Sidekiq's Web UI.
        order: Its queues.
        concurrency: Jobs at a time.
        source: Where the jobs come from.
        sink: Where their outcomes go; shared by all capsules.
        job_table: Shared by all capsules.
        outcome_policy: Shared by all capsules.
        metrics: Shared by all capsules.
        loop: Shared by all capsules.
        ticker: Checks time limits; shared by all capsules.
        cancelled_ids: The jobs that must not start; shared by all capsules.
    """

    def __init__(
        self,
        name: str,
        order: QueueOrder,
        concurrency: int,
        source: JobSource,
        *,
        sink: OutcomeSink,
        job_table: JobTable,
        outcome_policy: OutcomePolicy,
        metrics: Metrics,
        loop: AsyncLoop,
        ticker: Ticker,
        cancelled_ids: CancelledIds,
    ) -> None:
        self.shape = CapsuleShape(name, concurrency, order)
        self._source = source
        self._lock = threading.Lock()  # held while a thread is added
        self._processors: list[Processor] = []  # changed under `_lock`
        prefix = f"{os.getpid():x}-{name}-"
        self._tasks: Tasks | None = None
        if source.lead is not None:
            self._tasks = Tasks(
                f"{prefix}a",
                loop,
                source.lead,
                source.put_back,
                sink,
                outcome_policy,
                metrics.for_thread(),
                cancelled_ids,
            )
            ticker.add_periodic_check(self._tasks.return_cancelled)
            source.lead.on_thread_wanted(self._add_thread)

        def make(number: int) -> Processor:
            return Processor(
                f"{prefix}{number}",
                f"jobwire-{name}-{number}",
                source,
                tasks=self._tasks,
                job_table=job_table,
                outcome_policy=outcome_policy,
                counters=metrics.for_thread(),
                watch=ticker.wake,
                cancelled_ids=cancelled_ids,
            )

        self._make = make
        ticker.add_periodic_check(self._enforce_time_limits)

    def start(self) -> None:
        """Start the first threads; more come when there is work for them."""
        for _ in range(self._source.max_threads if self._source.lead is None else 1):
            self._add_thread()

    @property
    def alive(self) -> bool:
        """True if any thread runs."""
        return any(processor.alive for processor in self._processors)

    @property
    def busy(self) -> bool:
        """True if any job runs, or a handler of its end does."""
        return bool(self._held())

    @property
    def fetches(self) -> int:
        """Number of requests for jobs that were sent to Redis."""
        return self._source.fetches

    def works(self) -> dict[str, Work]:
        """Return the work records of the running jobs, by thread or task. [BEAT-5]"""
        works = ((processor.tid, processor.work) for processor in self._processors)
        in_threads = {tid: work for tid, work in works if work is not None}
        return in_threads if self._tasks is None else in_threads | self._tasks.works()

    def fetch_step(self) -> object:
        """Return a value that changes with each fetch or wait; None while there is none to do."""
        return self._source.step()

    def step(self) -> object:
        """Return a value that changes with each job, while no thread is free and all hang.

        None otherwise.
        """
        busy = [each for each in self._processors if each.held is not None]
        if len(busy) < self.shape.concurrency or not all(each.hangs for each in busy):
            return None
        return tuple(each.held and each.held.field for each in busy)

    def known_fields(self) -> list[str]:
        """Return the private entries of all jobs that this capsule has taken. [REL-8]"""
        return [held.field for held in self._held()]

    def quiet(self) -> None:
        """Start no more jobs. [SIG-2] [FETCH-5]"""
        self._source.close()

    def wait(self, deadline: float) -> bool:
        """Wait for the running jobs until a monotonic time; return whether all ended."""
        ended = [processor.join(deadline - time.monotonic()) for processor in self._processors]
        if self._tasks is not None:
            ended.append(self._tasks.wait(deadline))
        return all(ended)

    def put_back(self) -> int:
        """Return the jobs in progress, which go on, to their queues; return how many. [SIG-5]"""
        held = [job for processor in self._processors if (job := processor.give_back())]
        if self._tasks is not None:
            held += self._tasks.give_back()
        held = _distinct(held)
        return self._source.put_back(held) if held else 0

    def interrupt(self) -> None:
        """Raise `Shutdown` in the jobs in progress; cancel the async ones."""
        for processor in self._processors:
            processor.interrupt(Shutdown)
        if self._tasks is not None:
            self._tasks.interrupt()

    def cancel(self, ids: Collection[str]) -> None:
        """End the jobs in progress with these ids. [X-CANCEL-3]"""
        for processor in self._processors:
            processor.cancel(ids)
        if self._tasks is not None:
            self._tasks.cancel(ids)

    def _held(self) -> list[InFlightJob]:
        """Return the jobs in progress."""
        held = [job for processor in self._processors if (job := processor.held)]
        if self._tasks is not None:
            held += self._tasks.held()
        return _distinct(held)

    def _add_thread(self) -> None:
        with self._lock:
            number = len(self._processors)
            if number >= self._source.max_threads:
                return
            processor = self._make(number)
            # Must come before the start: the thread may take a job with a time limit at once.
            self._processors.append(processor)
            try:
                processor.start()
            except RuntimeError as error:  # a limit of the system; the other threads go on
                self._processors.pop()
                if not self._processors:
                    raise
                _log.error("only %d threads can be started: %s", number, error)

    def _enforce_time_limits(self) -> float | None:
        """Interrupt the jobs that are over their limit; return in how many seconds the next is."""
        now = time.monotonic()
        waits = [processor.enforce_time_limit(now) for processor in self._processors]
        return min((wait for wait in waits if wait is not None), default=None)


def _distinct(jobs: Sequence[InFlightJob]) -> list[InFlightJob]:
    """Return each job once; a thread may be handing one to a task, so that both have it."""
    return list({id(job): job for job in jobs}.values())
