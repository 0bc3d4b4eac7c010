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
from jobwire.protocol.metrics import Tally
from jobwire.protocol.payload import Job
from jobwire.protocol.reliable import InFlightJob
from jobwire.worker.execute.compiled_job import CompiledJob
from jobwire.worker.execute.event_loop import AsyncLoop
from jobwire.worker.execute.outcome_policy import OutcomePolicy
from jobwire.worker.fetch.source import Fetcher

__all__ = ["Tasks"]

_log = logging.getLogger("jobwire.worker")
_Call = Callable[[Job], Coroutine[Any, Any, Any]]
_Entry = tuple[InFlightJob, Job, CompiledJob, _Call]


class Tasks:
    """Takes jobs from the threads that fetch.

    Args:
        prefix: Of the names in work records.
        loop: Where they run.
        fetcher: Where the jobs come from.
        conclusion: What to do at their end.
        tally: Counts them.
    """

    def __init__(
        self,
        prefix: str,
        loop: AsyncLoop,
        fetcher: Fetcher,
        outcome_policy: OutcomePolicy,
        tally: Tally,
    ) -> None:
        self._prefix = prefix
        self._loop = loop
        self._fetcher = fetcher
        self._outcome_policy = outcome_policy
        self._tally = tally
        self._inbox: deque[_Entry] = deque()
        self._waking = False
        self._interrupted = False
        self._names: list[str] = []  # of slots that are free
        self._works: dict[str, Work] = {}
        self._held: dict[asyncio.Task[None], InFlightJob] = {}

    def submit(self, held: InFlightJob, job: Job, compiled: CompiledJob, call: _Call) -> None:
        """Run a job soon; its slot is freed at its end."""
        self._inbox.append((held, job, compiled, call))
        if not self._waking:
            self._waking = True
            self._loop.call(self._start)

    def works(self) -> dict[str, Work]:
        """Return what runs, by name. [BEAT-5]"""
        return self._works.copy()

    def held(self) -> list[InFlightJob]:
        """Return the jobs in progress, and those about to be."""
        return [*self._held.copy().values(), *(entry[0] for entry in self._inbox.copy())]

    def wait(self, deadline: float) -> bool:
        """Wait for the running jobs until a monotonic time; return whether all ended."""
        while self._held or self._inbox:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        return True

    def interrupt(self) -> None:
        """Cancel all jobs, put back before. [SIG-5] [RETRY-10]"""
        if self._held or self._inbox:
            self._loop.call(self._cancel)

    # -- in the loop

    def _start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waking = False
        while self._inbox:
            held, job, compiled, call = self._inbox.popleft()
            task = loop.create_task(self._run(held, job, compiled, call))
            self._held[task] = held
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        del self._held[task]
        self._fetcher.free()
        self._fetcher.hurry()
        if not task.cancelled() and (error := task.exception()) is not None:
            # A bug of ours. The job stays held.
            _log.error("async job not settled, which is a bug", exc_info=error)

    def _cancel(self, _: asyncio.AbstractEventLoop) -> None:
        self._interrupted = True
        self._inbox.clear()
        for task in self._held:
            task.cancel()

    async def _run(self, held: InFlightJob, job: Job, compiled: CompiledJob, call: _Call) -> None:
        name = self._names.pop() if self._names else f"{self._prefix}{len(self._works)}"
        self._works[name] = Work(held.queue, held.text, time.time())
        current.set(job)  # the task has a context of its own
        self._outcome_policy.began(held)
        error: BaseException | None = None
        started = time.perf_counter()
        try:
            await call(job)
        except BaseException as raised:  # noqa: BLE001 - user code, which must not end the loop
            error = raised
        finally:
            del self._works[name]
            self._names.append(name)
        seconds = time.perf_counter() - started
        if error is not None and self._interrupted:
            _log.warning("interrupted; the job was put back and will run again")
            return
        end = (held, job, compiled, error, seconds, self._fetcher)
        if self._outcome_policy.may_block(error):
            tally = Tally()  # one that only this thread writes
            await asyncio.to_thread(self._outcome_policy.end, *end, tally)
            self._tally.add(tally)
        else:
            self._outcome_policy.end(*end, self._tally)
