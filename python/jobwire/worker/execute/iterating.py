"""Execution of iterable jobs in a worker. [ITER-3] to [ITER-7]"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from jobwire.application.iterabletype import IterableSpec, IterationSteps, aperform, perform
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.iteration import Ask, Run, Store, Warn
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import Job
from jobwire.protocol.wire import Command

__all__ = ["Iterations"]

_log = logging.getLogger("jobwire.worker")


class Iterations:
    """Runs the iterable jobs of a process. Many threads may use it.

    Args:
        redis: The Redis that holds the states.
        keys: Key names.
        stopping: Returns True if the worker is quiet or stops, so that jobs must yield. [ITER-14]
        max_runtime: Seconds after which a job gives way to other jobs; None for no limit. A job's
            own setting takes precedence. [ITER-11]
        clock: Returns the seconds of a monotonic clock.
    """

    def __init__(
        self,
        redis: SyncRedis,
        keys: Keys,
        *,
        stopping: Callable[[], bool],
        max_runtime: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._stopping = stopping
        self._max_runtime = max_runtime
        self._clock = clock

    def run(
        self,
        job: Job,
        spec: IterableSpec,
        *,
        args: Sequence[Any] | None = None,
        on_finish: Callable[[Command], None] | None = None,
    ) -> None:
        """Process the items of a job, from its cursor to the end.

        Args:
            job: The job; without a jid it has no state, so it cannot stop early.
            spec: Its definition.
            args: The arguments for the function; default: those of the payload.
            on_finish: Called with the command that deletes the state of the complete job, for a
                worker that sends it with the outcome. Without it, this method sends the command,
                and a crash before the outcome is stored repeats the job from its beginning.
                [ITER-6]

        Raises:
            Interrupted: The state is saved; the job goes back to its queue. [ITER-4]
            RedisTrouble: The state could not be read or deleted.
            Exception: The job raised it; the state is saved. [ITER-10]
        """
        iteration = IterationSteps(spec, tuple(job.parameters if args is None else args))

        def take(ask: Ask) -> Any:
            match ask:
                case Store(op):
                    return self._redis.run(op)
                case Warn(problem):
                    return _log.warning("%s", problem)
            return iteration.take(ask)

        try:
            perform(self._run(job, spec, on_finish).steps(), take)
        finally:
            iteration.end()

    async def arun(
        self,
        job: Job,
        spec: IterableSpec,
        *,
        args: Sequence[Any] | None = None,
        on_finish: Callable[[Command], None] | None = None,
    ) -> None:
        """Process the items of an async job, in its event loop; see `run`."""
        iteration = IterationSteps(spec, tuple(job.parameters if args is None else args))

        async def take(ask: Ask) -> Any:
            match ask:
                case Store(op):
                    return await asyncio.to_thread(self._redis.run, op)
                case Warn(problem):
                    return _log.warning("%s", problem)
            return await iteration.atake(ask)

        try:
            await aperform(self._run(job, spec, on_finish).steps(), take)
        finally:
            await iteration.aend()

    def _run(
        self, job: Job, spec: IterableSpec, on_finish: Callable[[Command], None] | None
    ) -> Run:
        return Run(
            job.jid,
            self._keys,
            clock=self._clock,
            stopping=self._stopping,
            max_runtime=self._max_runtime if spec.max_runtime is None else spec.max_runtime,
            on_finish=on_finish,
        )
