"""A real server for tests, and a real worker that drains it."""

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
from jobwire.connection.cluster import keys_at
from jobwire.connection.connect import safe_url
from jobwire.connection.sync import SyncRedis
from jobwire.errors import ConfigError
from jobwire.inspect import Inspector
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import Job
from jobwire.protocol.wire import Batch, Op, command, once
from jobwire.testing.collecting import permitted
from jobwire.worker import Launcher, Timings

__all__ = ["RealServer", "RealWorker", "real", "server", "worker"]

_CHECK_INTERVAL_S = 0.005  # between two checks of a worker
# Ends the server of a test process in every case, because the pipe closes even at kill -9. The
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
        url: Its URL.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._redis = SyncRedis(url)

    def flush(self) -> None:
        """Delete all data."""
        self._redis.run(once(command("FLUSHDB")))

    def _check_empty(self) -> None:
        count = self._redis.run(once(command("DBSIZE")))
        if count:
            raise ConfigError(
                f"the database {safe_url(self.url)} is not empty ({count} keys), and tests "
                "delete all its data; name an unused database, like redis://127.0.0.1/15"
            )

    def _close(self) -> None:
        self._redis.close()


@contextmanager
def server(url: str | None = None) -> Iterator[RealServer]:
    """Run an empty server for this test only, or use an empty database.

    Args:
        url: The database, which is emptied at the end. None: an embedded server, which ends then.

    Raises:
        ConfigError: The database is not empty.
        EmbeddedUnavailable: `jobwire[embedded]` is not installed.
    """
    with ExitStack() as stack:
        if url is None:
            url = stack.enter_context(_embedded())
        started = RealServer(url)
        stack.callback(started._close)
        started._check_empty()
        stack.callback(started.flush)
        yield started


@contextmanager
def _embedded() -> Iterator[str]:
    with (
        tempfile.TemporaryDirectory(prefix="jobwire-test-") as place,
        embedded.start(place) as started,
    ):
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARD, str(started.pid), place],
            stdin=subprocess.PIPE,
            start_new_session=True,  # so that Ctrl-C does not reach it
        )
        try:
            yield started.url
        finally:
            started.close()
            guard.communicate(b"ended")


class RealWorker:
    """A worker in this process, for tests.

    Attributes:
        launcher: The launcher of the worker.
        errors: Job and error of each failed execution, oldest first.
    """

    def __init__(self, app: App, config: WorkerConfig) -> None:
        # Tests start and stop many.
        self.launcher = Launcher(app, config, timings=Timings(stop_check_interval=0.02))
        self.errors: list[tuple[Job, BaseException]] = []
        self._app = app
        self._keys = keys_at(self.launcher.url, app.namespace)
        self._queues = [name for capsule in config.capsules.values() for name in capsule.queues]
        self._redis = SyncRedis(self.launcher.url)
        self._reported = 0  # number of errors that a drain has reported
        self._counted = 0  # number of executions that a drain has returned

    def drain(self, timeout: float = 10.0, *, due: bool = False, raise_errors: bool = True) -> int:
        """Wait until the queues are empty and no job runs.

        Args:
            timeout: Seconds to wait.
            due: True to wait also until no scheduled job and no retry is due; see `promote`.
            raise_errors: True to raise the error of a failed job, after all jobs are done.

        Returns:
            Number of executions since the last drain.

        Raises:
            TimeoutError: Not all jobs were done in time; the text lists the remaining ones.
            ConfigError: A job is in a queue that the worker does not serve.
            Exception: The first job that failed since the last drain raised it.
        """
        deadline = time.monotonic() + timeout
        while True:
            state = self._read_state(due)
            # No jobs waited and none ran. The second reading shows that none came in between.
            if not state.left and not self.launcher.busy and self._read_state(due) == state:
                break
            if time.monotonic() >= deadline:
                self._raise_late(timeout, state)
            time.sleep(_CHECK_INTERVAL_S)
        self._check_others()
        if raise_errors:
            self._raise_first()
        ran, self._counted = state.processed - self._counted, state.processed
        return ran

    async def adrain(
        self, timeout: float = 10.0, *, due: bool = False, raise_errors: bool = True
    ) -> int:
        """Wait without blocking the event loop; see `drain`."""
        return await asyncio.to_thread(self.drain, timeout, due=due, raise_errors=raise_errors)

    def promote(self) -> int:
        """Move all scheduled jobs and retries to their queues, due or not; return their number."""
        with Inspector(self.launcher.url, namespace=self._app.namespace) as inspector:
            sweeps = [inspector.sweep(name, "add_to_queue") for name in ("retry", "schedule")]
        return sum(swept.done for swept in sweeps)

    def _read_state(self, due: bool) -> _State:
        op = _state(self._keys, self.launcher.identity, self._queues, time.time() if due else None)
        return self._redis.run(op)

    def _check_others(self) -> None:
        """Raise for a job in a queue that no capsule serves; unknown classes are for others."""
        with Inspector(self.launcher.url, namespace=self._app.namespace) as inspector:
            for queue in inspector.queues():
                if queue.name in self._queues:
                    continue
                for job in inspector.jobs(queue.name):
                    if self._app.find(job.fields) is not None:
                        raise ConfigError(
                            f"a job of class {job.class_name} is in the queue {queue.name!r}, but "
                            f"the worker serves only {', '.join(self._queues)}; add it to queues"
                        )

    def _raise_late(self, timeout: float, state: _State) -> None:
        left = [f"{count} in {place}" for place, count in state.left.items()]
        left += [f"{len(self.launcher.works())} running"] if self.launcher.busy else []
        late = TimeoutError(f"not all jobs were done in {timeout:g} s: {', '.join(left)}")
        raise late from next((error for _, error in self.errors[self._reported :]), None)

    def _raise_first(self) -> None:
        unreported, self._reported = self.errors[self._reported :], len(self.errors)
        if not unreported:
            return
        job, error = unreported[0]
        error.add_note(f"in the worker, by {job!r}; {len(unreported)} failed in total")
        if isinstance(error, Exception):
            raise error
        # A BaseException such as SystemExit would end the test run.
        raise RuntimeError(f"{job!r} raised {error!r}") from error

    def _failed(self, job: Job, error: BaseException) -> None:
        self.errors.append((job, error))

    def _start(self) -> None:
        self._app.error_handlers.append(self._failed)
        self.launcher.start()
        self._counted = self._read_state(due=False).processed

    def _stop(self) -> None:
        self.launcher.stop()
        self._app.error_handlers.remove(self._failed)
        self._redis.close()


@dataclass(frozen=True)
class _State:
    left: Mapping[str, int]  # place to number of jobs, without empty places
    processed: int


def _state(keys: Keys, identity: str, queues: Sequence[str], now: float | None) -> Op[_State]:
    """Return the waiting and held jobs, read at one moment."""
    commands = {f"queue {name!r}": command("LLEN", keys.queue(name)) for name in queues}
    commands["the worker's private hash"] = command("HLEN", keys.private(identity))
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
    """Run a real worker in this process, in its own threads.

    Args:
        app: The application with the jobs. Its clients use the worker's Redis until the end.
        url: URL of Redis; default: that of the application.
        queues: Names of the queues; default: all that the application's jobs name.
        concurrency: Number of jobs that run at the same time.
        **settings: Settings of `WorkerConfig`.
    """
    app.load()
    capsule = CapsuleConfig(
        queues=dict.fromkeys(app.queues if queues is None else queues, 0),
        concurrency=concurrency,
    )
    chosen: dict[str, Any] = {"timeout": 5.0, "poll_interval": 0.1, "capsules": {"test": capsule}}
    config = WorkerConfig(**{**chosen, **settings})
    with ExitStack() as stack:
        if url is not None:
            stack.enter_context(_connected(app, url))
        stack.enter_context(permitted(app))
        started = RealWorker(app, config)
        started._start()
        stack.callback(started._stop)
        yield started


@contextmanager
def real(app: App, **settings: Any) -> Iterator[RealWorker]:
    """Run a server and a worker on it; see `worker` for the settings."""
    with server() as started, worker(app, started.url, **settings) as running:
        yield running


@contextmanager
def _connected(app: App, url: str) -> Iterator[None]:
    before, named = app.url, app.redis
    app.connect(url, named=dict.fromkeys(named, url))
    try:
        yield
    finally:
        app.close()
        app.connect(before, named=named)
