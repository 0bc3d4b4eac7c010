"""Async jobs of one capsule: tasks of the event loop, without a thread each."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from jobwire.application.current import current
from jobwire.protocol.heartbeat import Work
from jobwire.protocol.metrics import ThreadMetrics
from jobwire.protocol.payload import Job
from jobwire.protocol.reliable import InFlightJob
from jobwire.worker.execute.event_loop import AsyncLoop
from jobwire.worker.execute.execution import Execution
from jobwire.worker.execute.outcome_policy import OutcomePolicy
from jobwire.worker.fetch.source import OutcomeSink, SharedLead

__all__ = ["Tasks"]

_log = logging.getLogger("jobwire.worker")
_Call = Callable[[Job], Coroutine[Any, Any, Any]]


class Tasks:
    """Runs async jobs that the threads fetched.

    Args:
        prefix: Begin of the names in work records.
        loop: Where the jobs run.
        lead: Gets the slots back.
        sink: Told to store outcomes, because perhaps no fetch will carry them.
        outcome_policy: Handles the end of each job.
        counters: Counts the jobs of this capsule.
    """

    def __init__(
        self,
        prefix: str,
        loop: AsyncLoop,
        lead: SharedLead,
        sink: OutcomeSink,
        outcome_policy: OutcomePolicy,
        counters: ThreadMetrics,
    ) -> None:
        self._prefix = prefix
        self._loop = loop
        self._release = lead.release
        self._flush_soon = sink.flush_soon
        self._outcome_policy = outcome_policy
        self._counters = counters
        # Any thread appends, only the loop takes; each is one atomic step.
        self._inbox: deque[tuple[Execution, _Call]] = deque()
        self._waking = False
        self._interrupted = False
        self._names: list[str] = []  # of slots that are free
        self._works: dict[str, Work] = {}
        self._executions: dict[asyncio.Task[None], Execution] = {}  # changed in the loop only

    def submit(self, execution: Execution, call: _Call) -> None:
        """Run a job soon; its slot is freed at its end."""
        self._inbox.append((execution, call))
        if not self._waking:
            self._waking = True
            self._loop.call(self._start)

    def works(self) -> dict[str, Work]:
        """Return the work records of the running jobs, by name. [BEAT-5]"""
        return self._works.copy()

    def held(self) -> list[InFlightJob]:
        """Return the jobs in progress, and those about to be."""
        submitted = [execution for execution, _ in self._inbox.copy()]
        return [execution.held for execution in (*self._executions.copy().values(), *submitted)]

    def wait(self, deadline: float) -> bool:
        """Wait for the running jobs until a monotonic time; return whether all ended."""
        while self._executions or self._inbox:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True

    def interrupt(self) -> None:
        """Cancel all jobs. The caller has put them back before. [SIG-5] [RETRY-10]"""
        if self._executions or self._inbox:
            self._loop.call(self._cancel)

    # -- in the loop

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waking = False
        while self._inbox:
            execution, call = self._inbox.popleft()
            task = loop.create_task(self._run(execution, call))
            self._executions[task] = execution
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        execution = self._executions.pop(task)
        self._release(execution.seconds)
        self._flush_soon()
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug of ours. The job stays held.
            _log.error("outcome of an async job not recorded, which is a bug", exc_info=error)

    def _cancel(self, _: asyncio.AbstractEventLoop) -> None:
        self._interrupted = True
        self._inbox.clear()
        for task in self._executions:
            task.cancel()

    async def _run(self, execution: Execution, call: _Call) -> None:
        held = execution.held
        name = self._names.pop() if self._names else f"{self._prefix}{len(self._works)}"
        self._works[name] = Work(held.queue, held.text, execution.began_at)
        current.set(execution.job)  # the task has a context of its own
        self._outcome_policy.began(execution)
        error: BaseException | None = None
        started = time.perf_counter()
        try:
            await call(execution.job)
        except BaseException as raised:  # noqa: BLE001 - user code, which must not end the loop
            error = raised
        finally:
            del self._works[name]
            self._names.append(name)
        execution.seconds = time.perf_counter() - started
        if error is not None and self._interrupted:
            _log.warning("interrupted; the job was put back and will run again")
            return
        if self._outcome_policy.may_block(error):
            counters = ThreadMetrics()  # one that only this thread writes
            await asyncio.to_thread(self._outcome_policy.end, execution, error, counters)
            self._counters.add(counters)
        else:
            self._outcome_policy.end(execution, error, self._counters)
