"""Isolated jobs: each runs in a process of its own, which may crash or be killed.

A worker's thread hands the job to a child process and waits. What happens around a job happens in
the worker: fetching, server middleware, hooks, retries. What has to be where the job's code is
happens in the child: the application's `around`, `current_job`, the log lines of the job. The two
share nothing else: a child imports the job's module again, so that global variables, connections
and middleware's changes to anything but the payload's fields stay on their side.

Children are reused, started ahead of need, and never outlive the worker, however that ends.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Self

from jobwire.application.config import url_or_default
from jobwire.application.jobtype import JobType
from jobwire.errors import ConfigError, JobCrashed, JobFailed, JobTimeout, JobwireError, Shutdown
from jobwire.protocol.payload import Job, encode
from jobwire.worker.execute.isolated import (
    Boot,
    Done,
    Interrupt,
    Raised,
    Ready,
    Task,
    Unfit,
    find_job,
    receive,
    send,
)
from jobwire.worker.execute.joblog import JsonFormatter, LogFormat

__all__ = ["Isolation"]

GOODBYE = 1.0  # seconds that idle children get to end by themselves at `close`
SLICE = 0.2  # seconds within which an interruption, or a death nobody reported, is noticed

_SCRIPT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from jobwire.worker.execute.isolated import serve; serve(int(sys.argv[1]))"
)
_log = logging.getLogger("jobwire.worker")


class Isolation:
    """Runs jobs in child processes.

        with Isolation(jobs, size=5) as isolation:
            isolation.run(job, definition, timeout=30)

    Args:
        jobs: What may be run. Each function must be in a module that can be imported again.
        size: Children at most; as many as threads call `run`.
        interrupt_grace: Seconds that an interrupted job gets for its `finally` blocks.
        idle_limit: Seconds after which a child without work ends; one child is kept.

    Raises:
        ConfigError: A job could not be found again by a child.
    """

    def __init__(
        self,
        jobs: Iterable[JobType[..., Any]],
        *,
        size: int,
        interrupt_grace: float = 3.0,
        idle_limit: float = 60.0,
    ) -> None:
        self._interrupt_grace = interrupt_grace
        self._idle_limit = idle_limit
        self._boot = _boot(list(jobs))
        self._size = size
        self._changed = threading.Condition()  # over all below
        self._idle: list[_Child] = []  # the latest used is the last
        self._children: set[_Child] = set()
        self._starting = 0
        self._runs: dict[int, _Run] = {}  # by thread
        self._tidier: threading.Timer | None = None
        self._closed = False
        # Children are started by this one thread: the kernel counts the thread that starts a
        # process as its parent, and kills the child when that thread ends.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="jobwire-isolation")

    def start(self) -> None:
        """Start the first child, so that jobs which no child can find fail now, not later.

        Raises:
            ConfigError: A child cannot import a job's module, or does not find the job in it.
                `close` is still to be called.
        """
        if not self._boot.jobs:
            return
        with self._changed:
            self._starting += 1
        child = self._begin()
        try:
            child.wait_ready()
        except JobCrashed as error:
            raise ConfigError(f"isolated jobs: {error}") from None
        finally:
            self._release(child)

    def run(self, job: Job, definition: JobType[..., Any], timeout: float | None) -> None:
        """Run a job in a child and wait for its end.

        Args:
            job: As middleware left it; its fields have to be JSON.
            definition: Which one of `jobs`.
            timeout: Seconds until the child is killed, with all processes that it started in
                its process group.

        Raises:
            JobFailed: The job raised.
            JobTimeout: It was killed for running longer than `timeout`.
            JobCrashed: Its process died.
            Shutdown: `interrupt` ended it.
        """
        task = Task(
            name=definition.name,
            text=job.text,
            fields=_fields(job),
            queue=job.queue,
            thread=threading.current_thread().name,
        )
        run = _Run()
        ident = threading.get_ident()
        with self._changed:
            self._runs[ident] = run
        child = None
        try:
            child = self._acquire(run)
            child.run(task, run, timeout)
        except JobwireError:
            if self._closed or run.kill_at is not None:
                raise Shutdown from None  # its child was killed for that
            raise
        finally:
            with self._changed:
                del self._runs[ident]
            if child is not None:
                self._release(child)

    def interrupt(self, thread: int) -> bool:
        """Raise `Shutdown` in the job that a thread runs; its child is killed a little later.

        Args:
            thread: The identifier of the thread that is in `run`.

        Returns:
            Whether that thread runs a job here.
        """
        with self._changed:
            run = self._runs.get(thread)
            if run is None:
                return False
            if run.kill_at is None:
                run.kill_at = time.monotonic() + self._interrupt_grace
            self._changed.notify_all()
        return True

    def close(self) -> None:
        """End all children; what still runs is killed. Harmless when repeated."""
        with self._changed:
            self._closed = True
            children, idle = list(self._children), self._idle
            self._idle = []
            if self._tidier is not None:
                self._tidier.cancel()
            self._changed.notify_all()
        for child in children:
            child.hang_up() if child in idle else child.kill()
        deadline = time.monotonic() + GOODBYE
        for child in children:
            child.wait(deadline - time.monotonic())
        self._starter.shutdown()

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _acquire(self, run: _Run) -> _Child:
        """Return a child that is ready, a new one if none is idle.

        Raises:
            JobCrashed: The new one cannot be used.
            Shutdown: It was interrupted meanwhile.
        """
        while True:
            with self._changed:
                while not self._idle and len(self._children) + self._starting >= self._size:
                    self._check(run)
                    self._changed.wait()
                self._check(run)
                child = self._idle.pop() if self._idle else None
                if child is None:
                    self._starting += 1
            if child is None:
                child = self._begin()
                try:
                    child.wait_ready()
                except JobCrashed:
                    self._release(child)
                    raise
            if child.alive:
                return child
            self._release(child)  # killed while idle, for want of memory perhaps

    def _check(self, run: _Run) -> None:
        if self._closed or run.kill_at is not None:
            raise Shutdown

    def _begin(self) -> _Child:
        """Start a child, counted in `_starting` before."""
        try:
            child = self._starter.submit(_Child, self._boot).result()
            with self._changed:
                self._children.add(child)
            return child
        finally:
            with self._changed:
                self._starting -= 1
                self._changed.notify_all()

    def _release(self, child: _Child) -> None:
        """Take a child back, or see a dead one off."""
        child.idle_since = time.monotonic()
        with self._changed:
            keep = child.alive and not self._closed
            if keep:
                self._idle.append(child)
            else:
                self._children.discard(child)
            self._tidy_later()
            self._changed.notify_all()
        if not keep:
            child.hang_up()
            child.wait(GOODBYE)

    def _tidy_later(self) -> None:
        if len(self._idle) > 1 and self._tidier is None:
            self._tidier = threading.Timer(self._idle_limit, self._tidy)
            self._tidier.daemon = True
            self._tidier.start()

    def _tidy(self) -> None:
        """End children that had nothing to do for long, but for one."""
        long_ago = time.monotonic() - self._idle_limit
        with self._changed:
            leaving = [each for each in self._idle[:-1] if each.idle_since <= long_ago]
            self._idle = [each for each in self._idle if each not in leaving]
            self._children.difference_update(leaving)
            self._tidier = None
            self._tidy_later()
        for child in leaving:
            child.hang_up()
            child.wait(GOODBYE)


class _Run:
    """One call of `run`."""

    __slots__ = ("kill_at",)

    def __init__(self) -> None:
        self.kill_at: float | None = None  # monotonic; None: not interrupted


class _Child:
    """A process, and the line to it."""

    def __init__(self, boot: Boot) -> None:
        self.idle_since = 0.0
        ours, theirs = socket.socketpair()
        with theirs:
            self._channel = ours
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SCRIPT, str(theirs.fileno()), json.dumps(sys.path)],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                # What it starts can be killed with it, and Ctrl-C in a terminal is ours alone.
                process_group=0,
            )
        with suppress(OSError):  # it has died already
            send(ours, boot)

    @property
    def alive(self) -> bool:
        """Whether the process exists."""
        return self._process.poll() is None

    def wait_ready(self) -> None:
        """Wait until it has imported the jobs.

        Raises:
            JobCrashed: It will never run one.
        """
        answer = receive(self._channel)
        if isinstance(answer, Ready):
            return
        reason = answer.reason if isinstance(answer, Unfit) else self._epitaph()
        self.kill()
        raise JobCrashed(f"their process cannot start: {reason}")

    def run(self, task: Task, run: _Run, timeout: float | None) -> None:
        """Have it run a job; see `Isolation.run`."""
        try:
            with suppress(OSError):  # it has died; seen below
                send(self._channel, task)
            answer = self._answer(run, timeout)
        except BaseException:  # time is up, or this thread was struck
            self.kill()
            raise
        if run.kill_at is not None:
            if answer is None:
                self.kill()
            raise Shutdown
        if answer is None:
            epitaph = self._epitaph()
            self.kill()  # what it has left behind
            raise JobCrashed(f"its process {epitaph}")
        if isinstance(answer, Raised):
            raise JobFailed(
                answer.error_class, answer.message, answer.backtrace, expected=answer.expected
            )

    def _answer(self, run: _Run, timeout: float | None) -> Done | Raised | None:
        """Return how the job ended; None if its process died, or ignores an interruption.

        Raises:
            JobTimeout: It has not ended in time.
        """
        limit = None if timeout is None else time.monotonic() + timeout
        asked = False
        poll = select.poll()  # not select, which knows no descriptor above 1023
        poll.register(self._channel, select.POLLIN)
        while True:
            now = time.monotonic()
            if run.kill_at is not None:
                limit = run.kill_at
                if not asked:
                    asked = True
                    with suppress(OSError):
                        send(self._channel, Interrupt())
            left = SLICE if limit is None else min(SLICE, limit - now)
            if left <= 0:
                if asked:
                    return None
                raise JobTimeout(f"still running after {timeout:g} s; its process was killed")
            if poll.poll(left * 1000 + 1):
                answer = receive(self._channel)
                return answer if isinstance(answer, Done | Raised) else None
            if not self.alive:
                return None  # while a process that it forked keeps the line open

    def hang_up(self) -> None:
        """Have it end by itself. Not while it runs a job."""
        self._channel.close()

    def kill(self) -> None:
        """End it now, with all that it has started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> None:
        """Wait for its end, and kill it if that does not come in time."""
        try:
            self._process.wait(max(timeout, 0))
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()

    def _epitaph(self) -> str:
        self.wait(GOODBYE)
        status = self._process.returncode
        if status >= 0:
            return f"ended with exit status {status}"
        hint = "; out of memory?" if status == -signal.SIGKILL else ""
        return f"was killed by signal {-status} ({signal.Signals(-status).name}){hint}"


def _fields(job: Job) -> bytes:
    try:
        return encode(job.fields)
    except (TypeError, ValueError, OverflowError) as error:
        raise TypeError(
            f"{error}; middleware may change fields of an isolated job to JSON values only"
        ) from None


def _boot(jobs: list[JobType[..., Any]]) -> Boot:
    places, files = {}, {}
    for definition in jobs:
        place = definition.function.__module__
        module = sys.modules.get(place)
        if place == "__main__":
            spec = getattr(module, "__spec__", None)
            if spec is None:
                raise ConfigError(
                    f"isolated job {definition.name!r} is defined in the program that was "
                    "started, which cannot be imported again; define it in a module of its own"
                )
            place = spec.name
        found = None if module is None else find_job(module, definition.name)
        if found is None or found[1].function is not definition.function:
            raise ConfigError(
                f"isolated job {definition.name!r}: its process could not find it again in "
                f"module {place}; define it, or its application, at the top level there"
            )
        places[definition.name] = place
        file = getattr(module, "__file__", None)
        if file and _is_loose(place, file):
            files[place] = os.path.abspath(file)
    root = logging.getLogger()
    is_json = any(isinstance(each.formatter, JsonFormatter) for each in root.handlers)
    log_format: LogFormat = "json" if is_json else "human"
    return Boot(
        worker=os.getpid(),
        directory=os.getcwd(),
        jobs=places,
        files=files,
        url=url_or_default(jobs[0].app.url if jobs else None),
        log_format=log_format,
        log_level=logging.getLevelName(root.level),
    )


def _is_loose(module: str, file: str) -> bool:
    """Whether a module came from a path, as `jobs.py:app`, not from the import path."""
    return "." not in module and not any(
        os.path.abspath(os.path.join(entry or ".", f"{module}.py")) == os.path.abspath(file)
        or os.path.abspath(os.path.join(entry or ".", module, "__init__.py"))
        == os.path.abspath(file)
        for entry in sys.path
    )
