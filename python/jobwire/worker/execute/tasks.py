"""Async jobs of one capsule: tasks of the event loop, without a thread each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from jobwire.application.current import current, running
from jobwire.errors import Cancelled, RedisTrouble
from jobwire.protocol.heartbeat import Work
from jobwire.protocol.metrics import ThreadMetrics
from jobwire.protocol.payload import Job
from jobwire.protocol.reliable import InFlightJob
from jobwire.worker.execute.compiled_job import CancelledIds
from jobwire.worker.execute.event_loop import AsyncLoop
from jobwire.worker.execute.execution import Execution
from jobwire.worker.execute.outcome_policy import OutcomePolicy
from jobwire.worker.fetch.job_source import SharedLead
from jobwire.worker.outcome.sink import OutcomeSink

__all__ = ["Tasks"]

RETURN_RETRY_INTERVAL_S = 1.0  # between tries to put cancelled jobs back

_log = logging.getLogger("jobwire.worker")
_Call = Callable[[Job], Coroutine[Any, Any, Any]]


class _JobTask(asyncio.Task[None]):
    """The task of one job. It notes if the job cancels itself, which is a failure of the job."""

    by_itself = False

    def cancel(self, msg: Any | None = None) -> bool:
        if asyncio.current_task(self.get_loop()) is self:
            self.by_itself = True
        return super().cancel(msg)


class Tasks:
    """Runs async jobs that the threads fetched.

    Args:
        prefix: Begin of the names in work records.
        loop: Where the jobs run.
        lead: Gets the slots back.
        put_back: Returns jobs to their queues.
        sink: Told to store outcomes, because perhaps no fetch will carry them.
        outcome_policy: Handles the end of each job.
        counters: Counts the jobs of this capsule.
        cancelled_ids: The jobs that must not start, because they were cancelled.
    """

    def __init__(
        self,
        prefix: str,
        loop: AsyncLoop,
        lead: SharedLead,
        put_back: Callable[[Sequence[InFlightJob]], int],
        sink: OutcomeSink,
        outcome_policy: OutcomePolicy,
        counters: ThreadMetrics,
        cancelled_ids: CancelledIds,
    ) -> None:
        self._prefix = prefix
        self._loop = loop
        self._release = lead.release
        self._put_back = put_back
        self._flush_soon = sink.flush_soon
        self._outcome_policy = outcome_policy
        self._counters = counters
        self._cancelled_ids = cancelled_ids
        # Any thread appends, only the loop takes; each is one atomic step.
        self._inbox: deque[tuple[Execution, _Call]] = deque()
        self._waking = False
        self._interrupted = False
        self._names: list[str] = []  # of slots that are free
        self._works: dict[str, Work] = {}
        self._executions: dict[asyncio.Task[None], Execution] = {}  # changed in the loop only
        # Cancelled, to be put back. The loop appends, only the ticker takes.
        self._cancelled: deque[InFlightJob] = deque()

    def submit(self, execution: Execution, call: _Call) -> None:
        """Run a job soon; its slot is freed at its end."""
        self._inbox.append((execution, call))
        if not self._waking:
            self._waking = True
            with suppress(RuntimeError):  # the loop is broken, and the process ends
                self._loop.call(self._start)

    def works(self) -> dict[str, Work]:
        """Return the work records of the running jobs, by name. [BEAT-5]"""
        return self._works.copy()

    def held(self) -> list[InFlightJob]:
        """Return the jobs in progress, and those about to be; a job may appear twice."""
        return [*(execution.held for execution in self._current()), *self._cancelled.copy()]

    def give_back(self) -> list[InFlightJob]:
        """Return the jobs of `held` that may run again."""
        current = (e.held for e in self._current() if not e.acknowledged)
        return [*current, *self._cancelled.copy()]

    def _current(self) -> list[Execution]:
        # In the order in which a job moves, so that each is seen at least once.
        submitted = [execution for execution, _ in self._inbox.copy()]
        return [*submitted, *self._executions.copy().values()]

    def wait(self, deadline: float) -> bool:
        """Wait for the running jobs until a monotonic time; return whether all ended."""
        while self._executions or self._inbox or self._cancelled:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True

    def interrupt(self) -> None:
        """Cancel all jobs. The caller has put them back before. [SIG-5] [RETRY-10]"""
        if self._executions or self._inbox:
            with suppress(RuntimeError):  # the loop is broken
                self._loop.call(self._cancel)

    def cancel(self, ids: Collection[str | None]) -> None:
        """End the tasks of the jobs with these ids. [X-CANCEL-7]"""
        if self._executions or self._inbox:
            with suppress(RuntimeError):  # the loop is broken
                self._loop.call(partial(self._cancel_marked, ids))

    def return_cancelled(self) -> float | None:
        """Put back the jobs that other code cancelled; the ticker calls it. [REL-7]"""
        jobs = [*self._cancelled.copy()]
        if not jobs:
            return None
        try:
            self._put_back(jobs)
        except RedisTrouble as error:
            _log.warning("cancelled jobs are not put back yet: %s", error)
            return RETURN_RETRY_INTERVAL_S
        for _ in jobs:
            self._cancelled.popleft()
        return None

    # -- in the loop

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waking = False
        while self._inbox:
            execution, call = self._inbox[0]
            # Not `create_task`, whose factory the code of a job may have replaced.
            task = _JobTask(self._run(execution, call), loop=loop)
            self._executions[task] = execution
            self._inbox.popleft()
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        execution = self._executions[task]
        try:
            if not execution.recorded and not self._interrupted:
                self._settle(execution, None if task.cancelled() else task.exception())
        finally:
            del self._executions[task]
            self._release(execution.seconds)
            self._flush_soon()

    def _settle(self, execution: Execution, error: BaseException | None) -> None:
        """Give a job an outcome whose task ended without one."""
        if error is not None:
            self._outcome_policy.unrecorded(execution.held, error)
            return
        with running(execution.job):
            if execution.job.cancelled:  # before its first step [X-CANCEL-6]
                self._outcome_policy.cancelled(execution, self._counters)
                return
            if execution.acknowledged:
                execution.log_interruption(_log)
                return
            _log.warning("cancelled by other code; the job is put back and will run again")
        self._cancelled.append(execution.held)

    def _cancel(self, _: asyncio.AbstractEventLoop) -> None:
        self._interrupted = True
        for execution, _call in self._inbox:
            if execution.acknowledged:
                with running(execution.job):
                    execution.log_interruption(_log)
        self._inbox.clear()
        for task in self._executions:
            task.cancel()

    def _cancel_marked(self, ids: Collection[str | None], _: asyncio.AbstractEventLoop) -> None:
        for task, execution in self._executions.items():
            job = execution.job
            if job.jid in ids and not job.cancelled and execution.cancellable:
                job.cancelled = True
                task.cancel()

    async def _run(self, execution: Execution, call: _Call) -> None:
        held = execution.held
        name = self._names.pop() if self._names else f"{self._prefix}{len(self._works)}"
        self._works[name] = Work(held.queue, held.text, execution.began_at, execution.job)
        error: BaseException | None = None
        started = time.perf_counter()
        try:
            current.set(execution.job)  # the task has a context of its own
            self._outcome_policy.began(execution)
            started = time.perf_counter()
            if (
                self._cancelled_ids.ids
                and execution.job.jid in self._cancelled_ids.ids
                and execution.cancellable
            ):
                raise Cancelled
            await call(execution.job)
        except BaseException as raised:  # noqa: BLE001 - user code, which must not end the loop
            error = raised
        finally:
            del self._works[name]
            self._names.append(name)
        execution.seconds = time.perf_counter() - started
        try:
            if error is not None and self._interrupted:
                execution.log_interruption(_log)
                return
            if isinstance(error, asyncio.CancelledError) and self._is_returned(execution):
                return
            if self._outcome_policy.may_block(error):
                counters = ThreadMetrics()  # one that only this thread writes
                await _in_thread(partial(self._outcome_policy.end, execution, error, counters))
                self._counters.add(counters)
            else:
                self._outcome_policy.end(execution, error, self._counters)
            execution.recorded = True
        finally:
            error = None  # its traceback has this frame, and only the collector frees a cycle

    def _is_returned(self, execution: Execution) -> bool:
        """True if a cancelled job did not fail by itself, and was not returned too often."""
        task = asyncio.current_task()
        outside = isinstance(task, _JobTask) and task.cancelling() and not task.by_itself
        may_run_again = execution.held.returned < self._outcome_policy.poison_limit
        refused = execution.acknowledged or execution.job.cancelled
        return bool(outside) and may_run_again and not refused


async def _in_thread(call: Callable[[], None]) -> None:
    """Run `call` in a thread, to its end even if this task is cancelled."""
    future = asyncio.get_running_loop().run_in_executor(None, copy_context().run, call)
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(future)
    future.result()
