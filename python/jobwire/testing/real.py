"""A server of a test's own, and a real worker that drains it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from jobwire.application.app import App
from jobwire.application.config import CapsuleConfig, WorkerConfig
from jobwire.connection import embedded
from jobwire.connection.sync import SyncRedis
from jobwire.errors import ConfigError
from jobwire.inspect import Inspector
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import Job
from jobwire.protocol.wire import Batch, Op, command, once
from jobwire.worker import Launcher, Timings

__all__ = ["RealServer", "RealWorker", "real", "server", "worker"]

_TICK = 0.005  # seconds between two looks at a worker
# Ends the server of a test process, however that ends: its pipe closes even at kill -9. The
# conformance suite has a reaper for more than one server; jobwire and the suite share no code.
_GUARD = """
import os, shutil, signal, sys
if not sys.stdin.read():
    os.kill(int(sys.argv[1]), signal.SIGKILL)
    shutil.rmtree(sys.argv[2], ignore_errors=True)
"""


class RealServer:
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
def server(url: str | None = None) -> Iterator[RealServer]:
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
        made = RealServer(url)
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


class RealWorker:
    """A worker in this process, for tests.

    Attributes:
        launcher: The worker itself.
        errors: The executions that failed: job and error, oldest first.
    """

    def __init__(self, app: App, config: WorkerConfig) -> None:
        # Tests start and stop many.
        self.launcher = Launcher(app, config, timings=Timings(stop_check_interval=0.02))
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
) -> Iterator[RealWorker]:
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
        made = RealWorker(app, config)
        made._start()
        stack.callback(made._stop)
        yield made


@contextmanager
def real(app: App, **settings: Any) -> Iterator[RealWorker]:
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
