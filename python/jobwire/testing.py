"""For tests of programs that enqueue jobs: collect them, run them here, or run a real worker.

    with testing.fake(app) as jobs:
        sign_up("ada@example.org")
        assert jobs.enqueued("SendWelcome", args=["ada@example.org"])
        jobs.drain()

What is enqueued goes through client middleware and every check, and becomes the JSON that Redis
would get; what runs is made from that JSON again. So a job sees what it would see in a worker, and
never the objects that its caller still holds.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeAlias

import msgspec

from jobwire import embedded, times
from jobwire._sync import SyncRedis
from jobwire.app import App
from jobwire.config import CapsuleConfig, WorkerConfig
from jobwire.current import running
from jobwire.errors import ConfigError
from jobwire.inspect import Inspector
from jobwire.iterabletype import IterableSpec
from jobwire.jobtype import JobType
from jobwire.keys import Keys
from jobwire.normalize import Sealed
from jobwire.payload import Job, decode, edit, encode
from jobwire.times import When
from jobwire.wire import Batch, Op, command, once
from jobwire.worker import Launcher
from jobwire.worker.aloop import AsyncLoop
from jobwire.worker.iterating import Iterations
from jobwire.worker.routine import Routine, Routines

__all__ = ["EnqueuedJob", "Jobs", "Server", "Worker", "fake", "inline", "real", "server", "worker"]


class _Any:
    def __repr__(self) -> str:
        return "ANY"


ANY: Any = _Any()  # None means something
MOST = 10_000  # jobs of one drain, before it is taken for one that never ends
_TICK = 0.005  # seconds between two looks at a worker
_SAME = 0.002  # seconds: payloads of generation 8 have milliseconds

JobName: TypeAlias = str | JobType[..., Any]


class EnqueuedJob(Job):
    """A job that was enqueued, as a worker would read it.

    Attributes:
        at: Epoch second that it is scheduled for; None for at once.
    """

    __slots__ = ("at",)

    def __init__(self, sealed: Sealed) -> None:
        read = decode(sealed.text, sealed.queue)
        super().__init__(read.text, read.fields, read.queue)
        self.at = sealed.at

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

    def deliver(self, jobs: Sequence[Sealed]) -> None:
        """Collect what was pushed."""
        self._collect(jobs)

    async def adeliver(self, jobs: Sequence[Sealed]) -> None:
        """Collect what was pushed."""
        self._collect(jobs)

    def cancel(self, jid: str) -> None:
        """Note that somebody wants a job to end."""
        self.cancelled.append(jid)

    def close(self) -> None:
        """End the event loop in which async jobs ran, if there was one."""
        self._loop.close(self._app.aclose)

    def _collect(self, jobs: Sequence[Sealed]) -> list[EnqueuedJob]:
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

    def _routine(self, job: Job, loop: AsyncLoop) -> Routine:
        # Made anew, so that middleware counts that a test has just added.
        return Routines(self._app, loop, None, _Here()).find(job)

    def _perform(self, enqueued: EnqueuedJob) -> None:
        job = _fetched(enqueued)
        with ExitStack() as stack:
            loop = self._loop
            if _in_loop():
                # Perhaps it is ours, and a job in it waits for this one: it would for ever.
                loop = AsyncLoop()
                stack.callback(loop.close, self._app.aclose)
            routine = self._routine(job, loop)
            stack.enter_context(running(job))
            copy_context().run(routine.call, job)  # a job's variables do not reach its caller

    async def _aperform(self, enqueued: EnqueuedJob) -> None:
        job = _fetched(enqueued)
        routine = self._routine(job, _ThisLoop(asyncio.get_running_loop()))
        with running(job):
            if routine.native is not None:
                ends = asyncio.create_task(routine.native(job))
            else:
                ends = asyncio.create_task(asyncio.to_thread(routine.call, job))
        await ends


class _InlineJobs(Jobs):
    """Runs each job when it is enqueued."""

    def deliver(self, jobs: Sequence[Sealed]) -> None:
        for job in self._collect(jobs):
            if self._takes(job):
                self._perform(job)

    async def adeliver(self, jobs: Sequence[Sealed]) -> None:
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
        with app.outlet.divert(jobs):
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


# -- for real

# Ends the server of a test process, however that ends: its pipe closes even at kill -9.
_GUARD = """
import os, shutil, signal, sys
if not sys.stdin.read():
    os.kill(int(sys.argv[1]), signal.SIGKILL)
    shutil.rmtree(sys.argv[2], ignore_errors=True)
"""


class Server:
    """A server for tests.

    Attributes:
        url: Where it is.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._redis = SyncRedis(url)

    def flush(self) -> None:
        """Delete everything."""
        self._redis.run(once(command("FLUSHDB")))

    def _check_empty(self) -> None:
        count = self._redis.run(once(command("DBSIZE")))
        if count:
            raise ConfigError(
                f"the database {_without_secret(self.url)} is not empty ({count} keys), and tests "
                "delete all that is there; name one that nobody uses, like redis://127.0.0.1/15"
            )

    def _close(self) -> None:
        self._redis.close()


@contextmanager
def server(url: str | None = None) -> Iterator[Server]:
    """Run a server, empty and for nobody else, or use a database that is empty.

    Args:
        url: The database; it is emptied at the end. None: an embedded server, which is gone then.

    Raises:
        ConfigError: The database is not empty.
        EmbeddedUnavailable: `jobwire[embedded]` is not installed.
    """
    with ExitStack() as stack:
        if url is None:
            url = stack.enter_context(_embedded())
        made = Server(url)
        stack.callback(made._close)
        made._check_empty()
        stack.callback(made.flush)
        yield made


@contextmanager
def _embedded() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="jobwire-test-") as place,
        embedded.start(place) as started,
    ):
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARD, str(started.pid), place],
            stdin=subprocess.PIPE,
            start_new_session=True,  # out of reach of Ctrl-C
        )
        try:
            yield started.url
        finally:
            started.close()
            guard.communicate(b"ended")


class Worker:
    """A worker in this process, for tests.

    Attributes:
        launcher: The worker itself.
        errors: The executions that failed: job and error, oldest first.
    """

    def __init__(self, app: App, config: WorkerConfig) -> None:
        self.launcher = Launcher(app, config)
        self.errors: list[tuple[Job, BaseException]] = []
        self._app = app
        self._keys = Keys(app.namespace)
        self._queues = [name for each in config.capsules.values() for name in each.queues]
        self._redis = SyncRedis(self.launcher.url)
        self._told = 0  # how many errors were raised
        self._counted = 0  # executions that a drain has returned

    def drain(self, timeout: float = 10.0, *, due: bool = False, raise_errors: bool = True) -> int:
        """Wait until the queues are empty and no job runs; return how many ran since the last.

        Args:
            timeout: Seconds to wait.
            due: Also until no scheduled job and no retry is due; see `promote`.
            raise_errors: Raise what a job raised, once all are done.

        Raises:
            TimeoutError: Not all was done in time; it says what is left.
            ConfigError: A job is in a queue that the worker does not serve.
            Exception: What the first job raised that failed since the last drain.
        """
        deadline = time.monotonic() + timeout
        while True:
            state = self._look(due)
            # Nothing was there and nothing ran, and in between nothing came and went.
            if not state.left and not self.launcher.busy and self._look(due) == state:
                break
            if time.monotonic() >= deadline:
                self._raise_late(timeout, state)
            time.sleep(_TICK)
        self._check_others()
        if raise_errors:
            self._raise_first()
        ran, self._counted = state.processed - self._counted, state.processed
        return ran

    async def adrain(
        self, timeout: float = 10.0, *, due: bool = False, raise_errors: bool = True
    ) -> int:
        """The same without blocking the event loop; see `drain`."""
        return await asyncio.to_thread(self.drain, timeout, due=due, raise_errors=raise_errors)

    def promote(self) -> int:
        """Put all scheduled jobs and retries into their queues, due or not; return how many."""
        with Inspector(self.launcher.url, namespace=self._app.namespace) as inspector:
            swept = [inspector.sweep(name, "add_to_queue") for name in ("retry", "schedule")]
        return sum(each.done for each in swept)

    def _look(self, due: bool) -> _State:
        op = _state(self._keys, self.launcher.identity, self._queues, time.time() if due else None)
        return self._redis.run(op)

    def _check_others(self) -> None:
        """Refuse jobs that wait in vain; those of classes unknown here are for others."""
        with Inspector(self.launcher.url, namespace=self._app.namespace) as inspector:
            for queue in inspector.queues():
                if queue.name in self._queues:
                    continue
                for job in inspector.jobs(queue.name):
                    if job.class_name in self._app.jobs:
                        raise ConfigError(
                            f"a job of class {job.class_name} is in the queue {queue.name!r}, but "
                            f"the worker serves only {', '.join(self._queues)}; name all in queues"
                        )

    def _raise_late(self, timeout: float, state: _State) -> None:
        left = [f"{count} in {place}" for place, count in state.left.items()]
        left += [f"{len(self.launcher.works())} running"] if self.launcher.busy else []
        late = TimeoutError(f"not all jobs were done in {timeout:g} s: {', '.join(left)}")
        raise late from next((error for _, error in self.errors[self._told :]), None)

    def _raise_first(self) -> None:
        fresh, self._told = self.errors[self._told :], len(self.errors)
        if not fresh:
            return
        job, error = fresh[0]
        error.add_note(f"in the worker, by {job!r}; {len(fresh)} failed in all")
        if isinstance(error, Exception):
            raise error
        raise RuntimeError(f"{job!r} raised {error!r}") from error  # not to end the test run

    def _failed(self, error: BaseException, job: Job) -> None:
        self.errors.append((job, error))

    def _start(self) -> None:
        self._app.error_handlers.append(self._failed)
        self.launcher.start()
        self._counted = self._look(due=False).processed

    def _stop(self) -> None:
        self.launcher.stop()
        self._app.error_handlers.remove(self._failed)
        self._redis.close()


@dataclass(frozen=True)
class _State:
    left: Mapping[str, int]  # place to number of jobs, where there are any
    processed: int


def _state(keys: Keys, identity: str, queues: Sequence[str], now: float | None) -> Op[_State]:
    """Return what there is to do, as of one moment."""
    commands = {f"queue {name!r}": command("LLEN", keys.queue(name)) for name in queues}
    commands["the hands of the worker"] = command("HLEN", keys.private(identity))
    if now is not None:
        commands["retry"] = command("ZCOUNT", keys.retry, "-inf", now)
        commands["schedule"] = command("ZCOUNT", keys.schedule, "-inf", now)
    last = command("GET", keys.stat("processed"))
    *counts, processed = yield Batch([*commands.values(), last], atomic=True)
    left = {place: count for place, count in zip(commands, counts, strict=True) if count}
    return _State(left, int(processed or 0))


@contextmanager
def worker(
    app: App,
    url: str | None = None,
    *,
    queues: Sequence[str] | None = None,
    concurrency: int = 5,
    **settings: Any,
) -> Iterator[Worker]:
    """Run a real worker in this process, in threads of its own.

    Args:
        app: Its jobs. Until the end its clients use the worker's Redis.
        url: Where Redis is; by default where the application has it.
        queues: By default all that the application's jobs name.
        concurrency: Jobs at a time.
        **settings: Of `WorkerConfig`.
    """
    capsule = CapsuleConfig(
        queues=dict.fromkeys(_queues(app) if queues is None else queues, 0),
        concurrency=concurrency,
    )
    chosen: dict[str, Any] = {"timeout": 5.0, "poll_interval": 0.1, "capsules": {"test": capsule}}
    config = WorkerConfig(**{**chosen, **settings})
    with ExitStack() as stack:
        if url is not None:
            stack.enter_context(_connected(app, url))
        made = Worker(app, config)
        made._start()
        stack.callback(made._stop)
        yield made


@contextmanager
def real(app: App, **settings: Any) -> Iterator[Worker]:
    """Run a server of one's own and a worker on it; see `worker` for the settings."""
    with server() as own, worker(app, own.url, **settings) as made:
        yield made


@contextmanager
def _connected(app: App, url: str) -> Iterator[None]:
    before = app.url
    app.connect(url)
    try:
        yield
    finally:
        app.close()
        app.connect(before)


def _queues(app: App) -> list[str]:
    names = ["default"]
    for job in app.jobs.values():
        names += (job.defaults.get(option) or "default" for option in ("queue", "retry_queue"))
    return list(dict.fromkeys(names))


def _without_secret(url: str) -> str:
    return url.rpartition("@")[2] if "@" in url else url
