"""A thread that takes jobs and runs them, one at a time. [EXEC-1] to [EXEC-7]"""

from __future__ import annotations

import concurrent.futures
import ctypes
import logging
import os
import random
import threading
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jobwire.app import JobType, ServerMiddleware, running
from jobwire.beat import Work
from jobwire.errors import MalformedPayload, Shutdown, UnknownJob
from jobwire.payload import Job, decode
from jobwire.reliable import Held
from jobwire.retry import Bury, Discard, Retry, after_failure, scrub
from jobwire.times import Generation
from jobwire.worker.aloop import AsyncLoop
from jobwire.worker.failure import describe
from jobwire.worker.fetcher import Done, Fetcher, Outcome, Unreadable

__all__ = ["Processor", "Workshop"]

CLEANUP = 3.0  # seconds that interrupted jobs get for their finally blocks

_log = logging.getLogger("jobwire.worker")


@dataclass(frozen=True, slots=True)
class Workshop:
    """What all processors of a process share.

    Attributes:
        jobs: Wire class to definition. Nothing else can be run. [SEC-1] [EXEC-2]
        middleware: Server middleware, outermost first. [EXEC-6]
        loop: Where `async def` jobs run.
        generation: Returns how to write times.
        max_retries: What `retry: true` means.
    """

    jobs: Mapping[str, JobType[..., Any]]
    middleware: Sequence[ServerMiddleware]
    loop: AsyncLoop
    generation: Callable[[], Generation]
    max_retries: int


class Processor:
    """One thread of a capsule.

    Attributes:
        tid: Its name in work records and the log.
    """

    def __init__(self, number: int, capsule: str, fetcher: Fetcher, workshop: Workshop) -> None:
        self.tid = f"{os.getpid():x}-{capsule}-{number}"
        self._fetcher = fetcher
        self._workshop = workshop
        self._thread = threading.Thread(
            target=self._run, name=f"jobwire-{capsule}-{number}", daemon=True
        )
        self._guard = threading.Lock()  # over the three below
        self._held: Held | None = None
        self._inside = False  # in the job's own code, where an interruption may strike
        self._interrupted = False
        self._run_at = 0.0
        self._future: concurrent.futures.Future[Any] | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end; return whether it did."""
        self._thread.join(max(timeout, 0))
        return not self._thread.is_alive()

    @property
    def alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def held(self) -> Held | None:
        """The job in progress."""
        return self._held

    @property
    def work(self) -> Work | None:
        """The job in progress, as others may see it. [BEAT-5]"""
        held = self._held
        return None if held is None else Work(held.queue, held.text, self._run_at)

    def interrupt(self) -> None:
        """Raise `Shutdown` inside the job in progress, put back before. [SIG-5] [RETRY-10]"""
        with self._guard:
            if not self._inside:
                return
            self._interrupted = True
            if self._future is not None:
                self._future.cancel()
            elif self._thread.ident is not None:
                # Delivered between two bytecodes; code that blocks in C is not reached.
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(self._thread.ident), ctypes.py_object(Shutdown)
                )

    def _run(self) -> None:
        while True:
            try:
                held = self._fetcher.take()
                if held is None:
                    return
                self._process(held)
            except Shutdown:
                return  # the job was put back; this thread is not needed any more
            except Exception:  # noqa: BLE001 - ours, and the thread must live
                # A bug of ours must not cost the process a thread. The job stays held.
                _log.exception("processor failed, which is a bug; it goes on")

    def _process(self, held: Held) -> None:
        started = time.perf_counter()
        try:
            job = decode(held.text, held.queue)
        except MalformedPayload as error:
            _log.error("payload in queue %s is buried as it is: %s", held.queue, error)
            self._fetcher.settle(held, Unreadable(error), seconds=0.0)
            return
        self._run_at = time.time()
        self._held = held
        try:
            with running(job):
                _log.info("start", extra={"returned": held.returned} if held.returned else None)
                outcome = self._execute(job, started)
            seconds = time.perf_counter() - started
            self._fetcher.settle(held, outcome, seconds=seconds)
        except Shutdown:
            with running(job):
                _log.warning("interrupted; the job was put back and will run again")
            raise
        finally:
            self._held = None

    def _execute(self, job: Job, started: float) -> Outcome:
        definition: JobType[..., Any] | None = None
        try:
            with self._guard:
                self._inside = True
            try:
                definition = self._workshop.jobs.get(job.class_name)
                self._through_middleware(job, definition)
            finally:
                with self._guard:
                    self._inside = False
        except BaseException as error:
            # The one place that runs user code: SystemExit and its like come from the job too,
            # and must not end the worker; a Shutdown that nobody sent is the job's own as well.
            if self._interrupted:
                raise Shutdown from error
            return self._failed(job, definition, error, started)
        _log.info("done", extra=_elapsed(started))
        return Done()

    def _through_middleware(self, job: Job, definition: JobType[..., Any] | None) -> Any:
        chain = self._workshop.middleware

        def layer(index: int) -> Any:
            if index < len(chain):
                return chain[index](job, lambda: layer(index + 1))
            if definition is None:
                raise UnknownJob(
                    f"no job is registered for class {job.get('class')!r}; "
                    f"known here: {', '.join(sorted(self._workshop.jobs)) or 'none'}"
                )
            if definition.is_async:
                return self._await(definition.function(*job.args))
            return definition.function(*job.args)

        return layer(0)

    def _await(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run an async job in the loop; this thread stands for its slot."""
        ended = threading.Event()

        async def watched() -> Any:
            try:
                return await coroutine
            finally:
                ended.set()

        self._future = self._workshop.loop.submit(watched())
        try:
            return self._future.result()
        except concurrent.futures.CancelledError:
            if self._interrupted:
                ended.wait(CLEANUP)  # its finally blocks run in the loop
            raise
        finally:
            self._future = None

    def _failed(
        self,
        job: Job,
        definition: JobType[..., Any] | None,
        error: BaseException,
        started: float,
    ) -> Retry | Bury | Discard:
        failure = describe(error)
        default_retry = None if definition is None else definition.defaults.get("retry")
        outcome = after_failure(
            decode(job.text, job.queue),  # as fetched, whatever was done to `job` [EXEC-5]
            failure,
            now=time.time(),
            dice=random.random(),
            generation=self._workshop.generation(),
            default_retry=True if default_retry is None and definition else default_retry,
            max_retries=self._workshop.max_retries,
        )
        _log.warning(
            "fail: %s: %.1000s; %s",
            failure.error_class,
            scrub(failure.message),
            _fate(outcome),
            extra=_elapsed(started),
            exc_info=error if _log.isEnabledFor(logging.DEBUG) else None,
        )
        return outcome


def _elapsed(started: float) -> dict[str, float]:
    return {"elapsed": round(time.perf_counter() - started, 3)}


def _fate(outcome: Retry | Bury | Discard) -> str:
    match outcome:
        case Retry(at=at, count=count):
            return f"retry {count + 1} in {at - time.time():.0f} s"
        case Bury():
            return "no retry left, moved to the dead set"
        case Discard():
            return "dropped, as the job asks for"
