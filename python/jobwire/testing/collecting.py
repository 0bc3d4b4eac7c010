"""Jobs without Redis: collected to be looked at and run later, or run where they are enqueued."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from typing import Any, TypeAlias

import msgspec

from jobwire.application.app import App
from jobwire.application.current import running
from jobwire.application.iterabletype import IterableSpec
from jobwire.application.jobtype import JobType
from jobwire.protocol import times
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.payload import Job, decode, edit, encode
from jobwire.protocol.times import When
from jobwire.worker.execute.compiled_job import CompiledJob, JobTable
from jobwire.worker.execute.event_loop import AsyncLoop
from jobwire.worker.execute.iterating import Iterations

__all__ = ["EnqueuedJob", "Jobs", "fake", "inline"]


class _Any:
    def __repr__(self) -> str:
        return "ANY"


ANY: Any = _Any()  # None means something
MOST = 10_000  # jobs of one drain, before it is taken for one that never ends
_SAME = 0.002  # seconds: payloads of generation 8 have milliseconds

JobName: TypeAlias = str | JobType[..., Any]


class EnqueuedJob(Job):
    """A job that was enqueued, as a worker would read it.

    Attributes:
        at: Epoch second that it is scheduled for; None for at once.
    """

    __slots__ = ("at",)

    def __init__(self, ready: ReadyPayload) -> None:
        read = decode(ready.text, ready.queue)
        super().__init__(read.text, read.fields, read.queue)
        self.at = ready.at

    def __repr__(self) -> str:
        when = "" if self.at is None else f" at={self.at:.3f}"
        return f"<{self.class_name} {self.args} queue={self.queue}{when}>"


class Jobs:
    """The jobs that an application has enqueued since `fake` or `inline` began.

    Safe to use from several threads. `len(jobs)` is how many wait, iterating gives them in order.

    Attributes:
        cancelled: The ids given to `Client.cancel`.
    """

    def __init__(self, app: App) -> None:
        self.cancelled: list[str] = []
        self._app = app
        self._loop = AsyncLoop()
        self._lock = threading.Lock()
        self._waiting: list[EnqueuedJob] = []
        self._performed: list[EnqueuedJob] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[EnqueuedJob]:
        return iter(self.enqueued())

    def __repr__(self) -> str:
        return f"<Jobs {self.enqueued()}>"

    # -- looking

    def enqueued(
        self,
        job: JobName = ANY,
        *,
        queue: str = ANY,
        args: Sequence[Any] = ANY,
        at: When | None = ANY,
    ) -> list[EnqueuedJob]:
        """Return the jobs that wait, in the order in which they were enqueued.

        Args:
            job: Only those of this wire class or definition.
            queue: Only those of this queue.
            args: Only those with these arguments, as JSON has them: `(1, 2)` is `[1, 2]`.
            at: Only those scheduled for this time, as given to `enqueue_in` or `enqueue_at`; None
                for those that run at once.
        """
        means = _filter(job, queue, args, at)
        return [each for each in list(self._waiting) if means(each)]

    def performed(
        self,
        job: JobName = ANY,
        *,
        queue: str = ANY,
        args: Sequence[Any] = ANY,
        at: When | None = ANY,
    ) -> list[EnqueuedJob]:
        """Return the jobs that were run here, those included that failed; see `enqueued`."""
        means = _filter(job, queue, args, at)
        return [each for each in list(self._performed) if means(each)]

    def clear(self) -> None:
        """Forget all jobs and cancellations."""
        with self._lock:
            self._waiting.clear()
            self._performed.clear()
            self.cancelled.clear()

    # -- running

    def perform_one(self, job: JobName = ANY, **only: Any) -> EnqueuedJob:
        """Run the first of the jobs that wait, or of those that `enqueued` would return.

        Raises:
            LookupError: There is none.
            UnknownJob: The application does not define it.
            BaseException: What the job raised; it waits no more.
        """
        found = self._first(job, only)
        self._perform(found)
        return found

    async def aperform_one(self, job: JobName = ANY, **only: Any) -> EnqueuedJob:
        """The same in a running event loop; see `perform_one`."""
        found = self._first(job, only)
        await self._aperform(found)
        return found

    def drain(self, *, scheduled: bool = True, limit: int = MOST) -> int:
        """Run all jobs, and those that they enqueue, until none waits; return how many ran.

        Those of classes that the application does not define are for other workers, and stay.

        Args:
            scheduled: Also those for later: in the order of their times, after all others.
            limit: More than so many are taken for a chain of jobs that never ends.

        Raises:
            BaseException: What a job raised; it waits no more, the ones after it still do.
        """
        count = 0
        while (job := self._next(scheduled, count, limit)) is not None:
            self._perform(job)
            count += 1
        return count

    async def adrain(self, *, scheduled: bool = True, limit: int = MOST) -> int:
        """The same in a running event loop, where async jobs run too; see `drain`."""
        count = 0
        while (job := self._next(scheduled, count, limit)) is not None:
            await self._aperform(job)
            count += 1
        return count

    # -- what clients call

    def deliver(self, jobs: Sequence[ReadyPayload]) -> None:
        """Collect what was pushed."""
        self._collect(jobs)

    async def adeliver(self, jobs: Sequence[ReadyPayload]) -> None:
        """Collect what was pushed."""
        self._collect(jobs)

    def cancel(self, jid: str) -> None:
        """Note that somebody wants a job to end."""
        self.cancelled.append(jid)

    def close(self) -> None:
        """End the event loop in which async jobs ran, if there was one."""
        self._loop.close(self._app.aclose)

    def _collect(self, jobs: Sequence[ReadyPayload]) -> list[EnqueuedJob]:
        made = [EnqueuedJob(job) for job in jobs]
        with self._lock:
            self._waiting += made
        return made

    def _first(self, job: JobName, only: Mapping[str, Any]) -> EnqueuedJob:
        with self._lock:
            found = next(iter(self.enqueued(job, **only)), None)
            if found is None:
                raise LookupError(f"no such job waits; enqueued: {self._waiting}")
            self._take(found)
            return found

    def _next(self, scheduled: bool, count: int, limit: int) -> EnqueuedJob | None:
        with self._lock:
            ours = [each for each in self._waiting if each.class_name in self._app.jobs]
            now = [each for each in ours if each.at is None]
            later = [each for each in ours if each.at is not None] if scheduled else []
            found = now[0] if now else min(later, key=_due, default=None)
            if found is None:
                return None
            if count >= limit:
                raise RuntimeError(
                    f"{limit} jobs ran and there are still {len(now) + len(later)}, first {found}: "
                    "one that enqueues itself again? Run them with perform_one, leave out later "
                    "ones with scheduled=False, or give drain a higher limit"
                )
            self._take(found)
            return found

    def _take(self, job: EnqueuedJob) -> None:
        """Note that a job runs. With the lock."""
        self._waiting = [each for each in self._waiting if each is not job]
        self._performed.append(job)

    def _routine(self, job: Job, loop: AsyncLoop) -> CompiledJob:
        # Made anew, so that middleware counts that a test has just added.
        return JobTable(self._app, loop, None, _Here()).find(job)

    def _perform(self, enqueued: EnqueuedJob) -> None:
        job = _fetched(enqueued)
        with ExitStack() as stack:
            loop = self._loop
            if _in_loop():
                # Perhaps it is ours, and a job in it waits for this one: it would for ever.
                loop = AsyncLoop()
                stack.callback(loop.close, self._app.aclose)
            compiled = self._routine(job, loop)
            stack.enter_context(running(job))
            copy_context().run(compiled.call, job)  # a job's variables do not reach its caller

    async def _aperform(self, enqueued: EnqueuedJob) -> None:
        job = _fetched(enqueued)
        compiled = self._routine(job, _ThisLoop(asyncio.get_running_loop()))
        with running(job):
            if compiled.native is not None:
                ends = asyncio.create_task(compiled.native(job))
            else:
                ends = asyncio.create_task(asyncio.to_thread(compiled.call, job))
        await ends


class _InlineJobs(Jobs):
    """Runs each job when it is enqueued."""

    def deliver(self, jobs: Sequence[ReadyPayload]) -> None:
        for job in self._collect(jobs):
            if self._takes(job):
                self._perform(job)

    async def adeliver(self, jobs: Sequence[ReadyPayload]) -> None:
        for job in self._collect(jobs):
            if self._takes(job):
                await self._aperform(job)

    def _takes(self, job: EnqueuedJob) -> bool:
        with self._lock:
            # Gone, if an earlier one of its bulk has run or cleared it.
            if job.class_name not in self._app.jobs or job not in self._waiting:
                return False
            self._take(job)
            return True


@contextmanager
def fake(app: App) -> Iterator[Jobs]:
    """Collect what is enqueued, from any thread or event loop, instead of writing it to Redis.

    When they are run, by `perform_one` or `drain`, jobs go through server middleware and `wrap`.
    An error comes out of the call that ran the job: there are no retries, no hooks and no
    handlers. Iterable jobs go through all items, isolated ones run in this process; time limits
    hold for async jobs.

    May be nested: the innermost collects.
    """
    with _diverted(app, Jobs(app)) as jobs:
        yield jobs


@contextmanager
def inline(app: App) -> Iterator[Jobs]:
    """Run what is enqueued, at once and however late it is scheduled; see `fake`.

    An error comes out of the call that enqueued the job. Jobs of classes that the application
    does not define are collected.
    """
    with _diverted(app, _InlineJobs(app)) as jobs:
        yield jobs


@contextmanager
def _diverted(app: App, jobs: Jobs) -> Iterator[Jobs]:
    try:
        with app.transport.override(jobs):
            yield jobs
    finally:
        jobs.close()


class _Here(Iterations):
    """Goes through all items of an iterable job, without the state that Redis would have."""

    def __init__(self) -> None:
        pass

    def run(self, job: Job, spec: IterableSpec, *, on_finish: object = None) -> None:
        spec.here()(*job.args)

    async def arun(self, job: Job, spec: IterableSpec, *, on_finish: object = None) -> None:
        await spec.here()(*job.args)


class _ThisLoop(AsyncLoop):
    """The test's own loop, for jobs that need a thread and come back to it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop


def _in_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _fetched(job: EnqueuedJob) -> Job:
    """Return a job as a worker gets it, once it is due."""
    text = job.text
    if job.at is not None:
        generation: times.Generation = 7 if isinstance(job.get("created_at"), float) else 8
        text = edit(text, {"enqueued_at": times.stamp(time.time(), generation)})
    return decode(text, job.queue)


def _due(job: EnqueuedJob) -> float:
    return job.at or 0.0


def _filter(
    job: JobName, queue: str, args: Sequence[Any], at: When | None
) -> Callable[[EnqueuedJob], bool]:
    name = job.name if isinstance(job, JobType) else job
    wire_args = args if args is ANY else msgspec.json.decode(encode(list(args)))

    def means(each: EnqueuedJob) -> bool:
        return (
            (name is ANY or each.class_name == name)
            and (queue is ANY or each.queue == queue)
            and (wire_args is ANY or each.args == wire_args)
            and (at is ANY or _is_due(each, at))
        )

    return means


def _is_due(job: EnqueuedJob, at: When | None) -> bool:
    if at is None or job.at is None:
        return at is job.at
    made = times.read(job.get("created_at")) or 0.0
    return abs(times.instant(at, now=made) - job.at) < _SAME
