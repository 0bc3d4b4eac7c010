"""Jobs without Redis: collected for inspection and for a later run, or run when enqueued."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Any, TypeAlias

import msgspec

from jobwire.application.app import App
from jobwire.application.current import running
from jobwire.application.delivery import Batches, Bridge
from jobwire.application.iterabletype import IterableSpec
from jobwire.application.jobtype import JobType
from jobwire.protocol import active_job, times
from jobwire.protocol.batches import BATCH, HowEnded, Membership, membership
from jobwire.protocol.chains import NEXT, next_job, passed_on
from jobwire.protocol.groups import GROUP_CLASS, gathered, gives, start, to_gather
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.payload import Job, decode, edit, encode
from jobwire.protocol.progress import JobProgress
from jobwire.protocol.results import KEEP, keep_of, result_to_store, value_members
from jobwire.protocol.times import When
from jobwire.protocol.unique import UNIQUE, Lock, Refused, lock_of
from jobwire.testing.batches import BatchStore, how_ended
from jobwire.worker.execute.compiled_job import CompiledJob, JobTable
from jobwire.worker.execute.event_loop import AsyncLoop
from jobwire.worker.execute.iterating import Iterations

__all__ = ["EnqueuedJob", "Jobs", "fake", "inline", "permitted", "strict"]


def _args_of(job: Job) -> Any:
    described = active_job.inner(job.fields)
    return job.args if described is None else described.get("arguments")


class _Any:
    def __repr__(self) -> str:
        return "ANY"


ANY: Any = _Any()  # not None, because None is a possible value
DRAIN_LIMIT = 10_000  # jobs of one drain, above which it is assumed never to end
_TIME_TOLERANCE_S = 0.002  # because payloads of generation 8 have only milliseconds

JobName: TypeAlias = str | JobType[..., Any]


class EnqueuedJob(Job):
    """An enqueued job, as a worker would read it.

    Attributes:
        at: Epoch second at which it is due; None if it runs at once.
    """

    __slots__ = ("at",)

    def __init__(self, ready: ReadyPayload) -> None:
        job = decode(ready.text, ready.queue)
        super().__init__(job.text, job.fields, job.queue)
        self.at = ready.at

    def __repr__(self) -> str:
        when = "" if self.at is None else f" at={self.at:.3f}"
        return f"<{self.class_name} {self.args} queue={self.queue}{when}>"


class Jobs:
    """The jobs that an application has enqueued since `fake` or `inline` began.

    Several threads may use it. `len(jobs)` is the number of waiting jobs; iteration gives them in
    order.

    Attributes:
        cancelled: The ids given to `Client.cancel`.
        batches: The batches that were made since.
    """

    def __init__(self, app: App) -> None:
        self.cancelled: list[str] = []
        self.batches = BatchStore()
        self._started: dict[str, list[ReadyPayload]] = {}  # members of groups, by group
        self._app = app
        self._bridge = app.transport.bridge
        self._loop = AsyncLoop() if self._bridge is None else _BridgedLoop(self._bridge)
        self._lock = threading.Lock()
        self._waiting: list[EnqueuedJob] = []
        self._performed: list[EnqueuedJob] = []
        self._results: dict[str, bytes] = {}
        self._outputs: dict[str, list[tuple[bytes, list[bytes]]]] = {}  # by job id
        self._locks: dict[str, tuple[str, float]] = {}  # digest -> job id, monotonic end
        self._ran: dict[str | None, Job] = {}  # by job id, as their own code has seen them

    def __len__(self) -> int:
        self._settle()
        return len(self._waiting)

    def __iter__(self) -> Iterator[EnqueuedJob]:
        return iter(self.enqueued())

    def __repr__(self) -> str:
        return f"<Jobs {self.enqueued()}>"

    # -- inspection

    def enqueued(
        self,
        job: JobName = ANY,
        *,
        queue: str = ANY,
        args: Sequence[Any] = ANY,
        at: When | None = ANY,
    ) -> list[EnqueuedJob]:
        """Return the waiting jobs, in the order in which they were enqueued.

        Args:
            job: Only jobs of this wire class or definition.
            queue: Only jobs of this queue.
            args: Only jobs with these arguments, as given to `enqueue` or as in the payload:
                `(1, 2)` equals `[1, 2]`.
            at: Only jobs scheduled for this time, as given to `enqueue_in` or `enqueue_at`; None
                for jobs that run at once.
        """
        self._settle()
        return self._enqueued(job, queue, args, at)

    def _enqueued(
        self, job: JobName, queue: str = ANY, args: Sequence[Any] = ANY, at: When | None = ANY
    ) -> list[EnqueuedJob]:
        matches = self._filter(job, queue, args, at)
        return [waiting for waiting in list(self._waiting) if matches(waiting)]

    def performed(
        self,
        job: JobName = ANY,
        *,
        queue: str = ANY,
        args: Sequence[Any] = ANY,
        at: When | None = ANY,
    ) -> list[EnqueuedJob]:
        """Return the jobs that ran here, including those that failed; see `enqueued`."""
        self._settle()
        matches = self._filter(job, queue, args, at)
        return [performed for performed in list(self._performed) if matches(performed)]

    def clear(self) -> None:
        """Forget all jobs, batches and cancellations."""
        self.batches.clear()
        with self._lock:
            self._waiting.clear()
            self._performed.clear()
            self._ran.clear()
            self._locks.clear()
            self._outputs.clear()
            self.cancelled.clear()

    def _filter(
        self, job: JobName, queue: str, args: Sequence[Any], at: When | None
    ) -> Callable[[EnqueuedJob], bool]:
        name = job.name if isinstance(job, JobType) else job
        wire_args = args
        if args is not ANY:
            definition = self._app.jobs.get(name)
            given = list(args) if definition is None else definition.parameters.encode(args)
            wire_args = msgspec.json.decode(encode(given))

        def matches(enqueued: EnqueuedJob) -> bool:
            return (
                (name is ANY or name in (enqueued.class_name, active_job.class_of(enqueued.fields)))
                and (queue is ANY or enqueued.queue == queue)
                and (wire_args is ANY or _args_of(enqueued) == wire_args)
                and (at is ANY or _is_due(enqueued, at))
            )

        return matches

    # -- running

    def perform_one(self, job: JobName = ANY, **only: Any) -> EnqueuedJob:
        """Run the first of the jobs that `enqueued` would return.

        Raises:
            LookupError: There is no such job.
            UnknownJob: The application does not define the job.
            BaseException: The job raised it; the job no longer waits.
        """
        first = self._first(job, only)
        self._perform(first)
        return first

    async def aperform_one(self, job: JobName = ANY, **only: Any) -> EnqueuedJob:
        """Run the first job in a running event loop; see `perform_one`."""
        first = self._first(job, only)
        await self._aperform(first)
        return first

    def drain(self, *, scheduled: bool = True, limit: int = DRAIN_LIMIT) -> int:
        """Run all jobs, and the jobs that they enqueue; return the number of jobs that ran.

        Jobs of classes that the application does not define are for other workers, and stay.

        Args:
            scheduled: True to run also scheduled jobs, in the order of their times, after all
                others.
            limit: Maximum number of jobs; more are assumed to be a chain that never ends.

        Raises:
            RuntimeError: More than `limit` jobs ran.
            BaseException: A job raised it. That job no longer waits; the jobs after it still do.
        """
        count = 0
        while (job := self._next(scheduled, count, limit)) is not None:
            self._perform(job)
            count += 1
        return count

    async def adrain(self, *, scheduled: bool = True, limit: int = DRAIN_LIMIT) -> int:
        """Run all jobs in a running event loop, which also runs async jobs; see `drain`."""
        count = 0
        while (job := self._next(scheduled, count, limit)) is not None:
            await self._aperform(job)
            count += 1
        return count

    # -- the interface for clients

    def deliver(self, jobs: Sequence[ReadyPayload]) -> Refused:
        """Collect pushed jobs; return the unique ones whose key another job has."""
        return self._collect(jobs)[1]

    async def adeliver(self, jobs: Sequence[ReadyPayload]) -> Refused:
        """Collect pushed jobs."""
        return self._collect(jobs)[1]

    def cancel(self, jid: str) -> None:
        """Record the cancellation of a job."""
        self.cancelled.append(jid)

    def result(self, jid: str) -> bytes | None:
        """Return the result of a job that ran here and returned."""
        return self._results.get(jid)

    def progress(self, jid: str) -> JobProgress | None:
        """Return what a job that ran here has reported last."""
        job = self._ran.get(jid)
        return None if job is None else job.progress

    def emit(self, jid: str, items: Sequence[bytes]) -> None:
        """Keep the items that a job emits."""
        with self._lock:
            entries = self._outputs.setdefault(jid, [])
            for item in items:
                name = f"{time.time() * 1000:.0f}-{len(entries) + 1}"
                entries.append((name.encode(), [b"run", b"here", b"item", item]))

    def output(self, jid: str) -> list[Any]:
        """Return the output of a job that ran here."""
        with self._lock:
            return [*self._outputs.get(jid, ())]

    def close(self) -> None:
        """End the event loop that ran async jobs, if there was one."""
        self._loop.close(self._app.aclose)

    def _collect(self, jobs: Sequence[ReadyPayload]) -> tuple[list[EnqueuedJob], Refused]:
        accepted: list[EnqueuedJob] = []
        refused: dict[str, str] = {}
        with self._lock:
            for job in jobs:
                enqueued = EnqueuedJob(job)
                holder = self._take_lock(job.lock, enqueued)
                if holder is None:
                    accepted.append(enqueued)
                    self._waiting.append(enqueued)
                else:
                    refused[job.jid] = holder
        return accepted, refused

    def _take_lock(self, lock: Lock | None, job: EnqueuedJob) -> str | None:
        """Return the job that has the key of a unique one. With the lock held. [X-UNIQ-3]"""
        if lock is None or not lock.at_push:
            return None
        now = time.monotonic()
        holder, until = self._locks.get(lock.digest, ("", 0.0))
        if until > now and not (lock.replaces and self._withdrawn(holder)):
            return holder
        self._locks[lock.digest] = job.jid or "", now + lock.seconds
        return None

    def _withdrawn(self, jid: str) -> bool:
        """Remove a waiting job that another replaces; False if it does not wait."""
        left = [waiting for waiting in self._waiting if waiting.jid != jid]
        found = len(left) < len(self._waiting)
        self._waiting = left
        return found

    def _release(self, job: Job, *, started: bool) -> None:
        """Release the lock of a job that starts, or has ended. [X-UNIQ-6] [X-UNIQ-7]"""
        lock = lock_of(job.get(UNIQUE))
        if lock is None or lock.scope != ("until_start" if started else "until_done"):
            return
        with self._lock:
            if self._locks.get(lock.digest, ("", 0.0))[0] == job.jid:
                del self._locks[lock.digest]

    def _settle(self) -> None:
        """Receive the jobs that wait only for the transaction in which a framework runs a test."""
        if (deferral := self._app.transport.deferral) is not None:
            deferral.settle()

    def _first(self, job: JobName, only: Mapping[str, Any]) -> EnqueuedJob:
        self._settle()
        with self._lock:
            first = next(iter(self._enqueued(job, **only)), None)
            if first is None:
                raise LookupError(f"no such job waits; enqueued: {self._waiting}")
            self._take(first)
            return first

    def _next(self, scheduled: bool, count: int, limit: int) -> EnqueuedJob | None:
        self._settle()
        with self._lock:
            known = [job for job in self._waiting if self._is_known(job)]
            now = [job for job in known if job.at is None]
            later = [job for job in known if job.at is not None] if scheduled else []
            following = now[0] if now else min(later, key=_due, default=None)
            if following is None:
                return None
            if count >= limit:
                raise RuntimeError(
                    f"{limit} jobs ran and {len(now) + len(later)} still wait, first {following}: "
                    "does a job enqueue itself? Run jobs with perform_one, leave out scheduled "
                    "jobs with scheduled=False, or give drain a higher limit"
                )
            self._take(following)
            return following

    def _take(self, job: EnqueuedJob) -> None:
        """Move a job from the waiting to the performed ones; the caller holds the lock."""
        self._waiting = [waiting for waiting in self._waiting if waiting is not job]
        self._performed.append(job)

    def _is_known(self, job: EnqueuedJob) -> bool:
        return job.class_name == GROUP_CLASS or self._app.find(job.fields) is not None

    def _compiled(self, job: Job, loop: AsyncLoop) -> CompiledJob:
        self._ran[job.jid] = job
        # Compiled for each job, so that middleware that a test has just added takes effect.
        iterations = _StatelessIterations()
        return JobTable(self._app, loop, None, iterations, groups=self._group).find(job)

    def _group(self, job: Job) -> None:
        """Start or end a group. [X-FLOW-9] [X-FLOW-11]"""
        ids = to_gather(job.text)
        if ids is not None:
            job.value = gathered(ids, [self._results.get(jid) for jid in ids])
            return
        group = start(job.text, job.queue, now=time.time(), generation=_generation(job))
        queue, text = group.end
        end = ReadyPayload(group.jid, queue, None, text)
        members = [ReadyPayload(jid, to.queue, None, to.text) for jid, to in group.members]
        batch = Membership(group.jid, queue)
        self.batches.make(batch, {"on_success": end}, "group")
        self.batches.add(batch, members)
        self.batches.end(batch, "closed")
        self._started[group.jid] = members
        job.fields.pop(NEXT, None)
        job.fields.pop(KEEP, None)

    def _perform(self, enqueued: EnqueuedJob) -> list[EnqueuedJob]:
        """Run a job; return those that follow it in a chain or a batch, which wait now."""
        if (dropped := self._dropped(enqueued)) is not None:
            return dropped
        if _in_loop():
            # The running loop waits for this job, so the job gets another loop and thread.
            call: Callable[[], Any] = lambda: asyncio.run(self._apart(enqueued))  # noqa: E731
            if self._bridge is not None:
                call = self._bridge.carry(call)
            with ThreadPoolExecutor(1) as thread:
                following: list[EnqueuedJob] = thread.submit(copy_context().run, call).result()
            return following
        job = _fetched(enqueued)
        compiled = self._compiled(job, self._loop)
        self._release(job, started=True)
        try:
            with running(job):  # in a copy: the caller must not see the variables of the job
                copy_context().run(compiled.call, job)
        except BaseException as error:
            self._end_member(job, how_ended(error))
            raise
        finally:
            self._release(job, started=False)
        return self._ended(job, compiled)

    async def _aperform(self, enqueued: EnqueuedJob) -> list[EnqueuedJob]:
        if (dropped := self._dropped(enqueued)) is not None:
            return dropped
        job = _fetched(enqueued)
        bridge = self._bridge
        loop = _ThisLoop(asyncio.get_running_loop()) if bridge is None else _BridgedLoop(bridge)
        compiled = self._compiled(job, loop)
        self._release(job, started=True)
        with running(job):
            if compiled.native is not None:
                task = asyncio.create_task(compiled.native(job))
            elif bridge is None:
                task = asyncio.create_task(asyncio.to_thread(compiled.call, job))
            else:
                task = asyncio.create_task(bridge.to_async(compiled.call)(job))
        try:
            await task
        except BaseException as error:
            self._end_member(job, how_ended(error))
            raise
        finally:
            self._release(job, started=False)
        return self._ended(job, compiled)

    async def _apart(self, enqueued: EnqueuedJob) -> list[EnqueuedJob]:
        """Run a job in a loop that ends with it."""
        try:
            return await self._aperform(enqueued)
        finally:
            await self._app.aclose()

    def _dropped(self, job: EnqueuedJob) -> list[EnqueuedJob] | None:
        """End a member whose batch is cancelled; None for any other job. [X-BATCH-7]"""
        member = membership(job.get(BATCH))
        if member is None or not self.batches.is_cancelled(member):
            return None
        with self._lock:
            self._performed = [each for each in self._performed if each is not job]
        return self._end_member(job, "dropped")

    def _end_member(self, job: Job, how: HowEnded | None) -> list[EnqueuedJob]:
        """End a member of a batch; return the callbacks, which wait now. [X-BATCH-5]"""
        member = membership(job.get(BATCH))
        if member is None or how is None or job.jid is None:
            return []
        return self._collect(self.batches.end_member(member, job.jid, how))[0]

    def _ended(self, job: Job, compiled: CompiledJob) -> list[EnqueuedJob]:
        """Keep the result of a job that returned, and collect the jobs that follow. [X-FLOW-3]"""
        following = None
        if NEXT in job.fields:
            now = times.stamp(time.time(), _generation(job))
            following = next_job(job.text, job.value, now=now)
        if gives(job.fields):
            job.value = passed_on("its group", job.value)
        keep = keep_of(job, compiled.keep)
        if keep and job.jid is not None:
            members = value_members(job.value)
            self._results[job.jid] = result_to_store(
                job.jid, keep, "done", members, now=time.time()
            ).text
        pushed, _ = self._collect(self._started.pop(job.jid or "", []))
        pushed += self._end_member(job, "done")
        if following is None:
            return pushed
        jid = str(decode(following.text, "").jid)
        waiting, _ = self._collect([ReadyPayload(jid, following.queue, None, following.text)])
        return waiting + pushed


class _InlineJobs(Jobs):
    """Runs each job when it is enqueued."""

    def deliver(self, jobs: Sequence[ReadyPayload]) -> Refused:
        accepted, refused = self._collect(jobs)
        while accepted:
            if self._takes(job := accepted.pop(0)):
                accepted[:0] = self._perform(job)
        return refused

    async def adeliver(self, jobs: Sequence[ReadyPayload]) -> Refused:
        accepted, refused = self._collect(jobs)
        while accepted:
            if self._takes(job := accepted.pop(0)):
                accepted[:0] = await self._aperform(job)
        return refused

    def _takes(self, job: EnqueuedJob) -> bool:
        with self._lock:
            # An earlier job of the same bulk may have run or cleared it.
            if not self._is_known(job) or job not in self._waiting:
                return False
            self._take(job)
            return True


@contextmanager
def fake(app: App) -> Iterator[Jobs]:
    """Collect enqueued jobs, from any thread or event loop, instead of writing them to Redis.

    When `perform_one` or `drain` runs jobs, they go through server middleware and `wrap`. An error
    comes out of the call that ran the job: there are no retries, no hooks and no handlers. Iterable
    jobs process all items. Isolated jobs run in this process. Only async jobs have time limits.

    It can be nested; then the innermost one collects the jobs.
    """
    with _overridden(app, Jobs(app)) as jobs:
        yield jobs


@contextmanager
def inline(app: App) -> Iterator[Jobs]:
    """Run jobs at once when they are enqueued, even scheduled ones; see `fake`.

    An error comes out of the call that enqueued the job. Jobs of classes that the application
    does not define are collected.
    """
    with _overridden(app, _InlineJobs(app)) as jobs:
        yield jobs


@contextmanager
def strict(app: App) -> Iterator[None]:
    """Refuse the jobs that an application enqueues, so that no test writes to a real Redis.

    `fake`, `inline`, `worker` and `real` inside it receive the jobs.

    Raises:
        AssertionError: By the call that enqueues or cancels a job.
    """
    with app.transport.override(_Refusal()):
        yield


@contextmanager
def permitted(app: App) -> Iterator[None]:
    """Suspend `strict`, because the Redis of the application is that of the test."""
    overrides = app.transport.overrides
    before = overrides.copy()
    overrides[:] = [delivery for delivery in before if not isinstance(delivery, _Refusal)]
    try:
        yield
    finally:
        overrides[:] = before


class _Refusal:
    """A delivery that accepts nothing."""

    def deliver(self, jobs: Sequence[ReadyPayload]) -> Refused:
        for job in jobs:
            refused = EnqueuedJob(job)
            raise AssertionError(
                f"a test enqueued {refused} in Redis; use the fixture jobwire_fake, "
                "jobwire_inline or jobwire_worker, or their context managers"
            )
        return {}

    async def adeliver(self, jobs: Sequence[ReadyPayload]) -> Refused:
        return self.deliver(jobs)

    def cancel(self, jid: str) -> None:
        raise AssertionError(f"a test cancelled the job {jid} in Redis")

    def result(self, jid: str) -> bytes | None:
        raise AssertionError(f"a test asked for the result of job {jid} in Redis")

    def progress(self, jid: str) -> JobProgress | None:
        raise AssertionError(f"a test asked for the progress of job {jid} in Redis")

    def emit(self, jid: str, items: Sequence[bytes]) -> None:
        raise AssertionError(f"a test emitted items of job {jid} to Redis")

    def output(self, jid: str) -> list[Any]:
        raise AssertionError(f"a test asked for the output of job {jid} in Redis")

    @property
    def batches(self) -> Batches:
        raise AssertionError("a test used a batch in Redis")


@contextmanager
def _overridden(app: App, jobs: Jobs) -> Iterator[Jobs]:
    try:
        with app.transport.override(jobs):
            yield jobs
    finally:
        jobs.close()


class _StatelessIterations(Iterations):
    """Processes all items of an iterable job, without a state in Redis."""

    def __init__(self) -> None:
        pass

    def run(
        self,
        job: Job,
        spec: IterableSpec,
        *,
        args: Sequence[Any] | None = None,
        on_finish: object = None,
    ) -> None:
        spec.here()(*(job.args if args is None else args))

    async def arun(
        self,
        job: Job,
        spec: IterableSpec,
        *,
        args: Sequence[Any] | None = None,
        on_finish: object = None,
    ) -> None:
        await spec.here()(*(job.args if args is None else args))


class _BridgedLoop(AsyncLoop):
    """Runs async code by the bridge of a framework, in the running loop or in a new one."""

    def __init__(self, bridge: Bridge) -> None:
        super().__init__()
        self._bridge = bridge

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        async def whole() -> Any:
            return await coroutine

        return self._bridge.to_sync(whole)()

    def run_around(
        self, around: Callable[[Callable[[], Any]], Awaitable[Any]], inner: Callable[[], Any]
    ) -> Any:
        return self._bridge.to_sync(around)(self._bridge.to_async(inner))


class _ThisLoop(AsyncLoop):
    """The test's own loop, for jobs that run in a thread and use the loop from there."""

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
    """Return a job as a worker would fetch it, at the time at which it is due."""
    text = job.text
    if job.at is not None:
        text = edit(text, {"enqueued_at": times.stamp(time.time(), _generation(job))})
    return decode(text, job.queue)


def _generation(job: Job) -> times.Generation:
    return 7 if isinstance(job.get("created_at"), float) else 8


def _due(job: EnqueuedJob) -> float:
    return job.at or 0.0


def _is_due(job: EnqueuedJob, at: When | None) -> bool:
    if at is None or job.at is None:
        return at is job.at
    created_at = times.read(job.get("created_at")) or 0.0
    return abs(times.instant(at, now=created_at) - job.at) < _TIME_TOLERANCE_S
