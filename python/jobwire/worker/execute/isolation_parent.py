"""Isolated jobs: each runs in its own process, which may crash or be killed.

A thread of the worker sends the job to a child process and waits. The worker does the work around
a job: fetching, server middleware, hooks, retries. The child provides the environment of the job's
code: the application's `around`, `current_job`, the log lines of the job. The two share nothing
else, because a child imports the job's module again. Global variables, connections, and changes
that middleware makes outside the payload's fields stay in their process.

Children are reused and started in advance. They never outlive the worker, even if it is killed.
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
from contextlib import AbstractContextManager, ExitStack, nullcontext, suppress
from types import ModuleType
from typing import Any, Self

import msgspec

from jobwire.application.jobtype import JobType
from jobwire.application.redis_url import find_address
from jobwire.errors import (
    Cancelled,
    ConfigError,
    JobCrashed,
    JobFailed,
    JobTimeout,
    JobwireError,
    Shutdown,
    Snooze,
)
from jobwire.protocol.payload import Job, encode
from jobwire.protocol.results import Members
from jobwire.worker.execute.isolation_child import (
    Boot,
    Done,
    Interrupt,
    Raised,
    Ready,
    Reported,
    Task,
    Unfit,
    find_job,
    receive,
    send,
)
from jobwire.worker.execute.joblog import LogFormat, is_set_up
from jobwire.worker.execute.log_format import JsonFormatter
from jobwire.worker.execute.output import Output

__all__ = ["Isolation"]

EXIT_TIMEOUT_S = 1.0  # in which idle children must end by themselves at `close`
MAX_FRAME = 64 * 2**20  # bytes of the answer of a child
FRAME_TIMEOUT_S = 5.0  # between two parts of a frame, which the child sends at once
CHECK_INTERVAL_S = 0.2  # between checks for an interruption or a dead child

_SCRIPT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from jobwire.worker.execute.isolation_child import serve; serve(int(sys.argv[1]))"
)
_log = logging.getLogger("jobwire.worker")


class Isolation:
    """Runs jobs in child processes.

        with Isolation(jobs, size=5) as isolation:
            isolation.run(job, definition, timeout=30)

    Args:
        jobs: The jobs to run. Each function must be in a module that can be imported again.
        size: Maximum number of children: the number of threads that call `run`.
        interrupt_grace: Seconds that an interrupted job has for its `finally` blocks.
        idle_limit: Seconds after which an idle child ends; one child is kept.
        entry: Name of the module that a child imports before those of the jobs; see `App`.

    Raises:
        ConfigError: A child could not find one of the jobs again.
    """

    def __init__(
        self,
        jobs: Iterable[JobType[..., Any]],
        *,
        size: int,
        interrupt_grace: float = 3.0,
        idle_limit: float = 60.0,
        entry: str | None = None,
    ) -> None:
        self._interrupt_grace = interrupt_grace
        self._idle_limit = idle_limit
        self._boot = _boot(list(jobs), entry)
        self._size = size
        # Guards `_idle`, `_children`, `_starting`, `_runs`, `_tidier` and `_closed`.
        self._changed = threading.Condition()
        self._idle: list[_ChildProcess] = []  # the one used last is the last
        self._children: set[_ChildProcess] = set()
        self._starting = 0
        self._runs: dict[int, _Run] = {}  # by thread
        self._tidier: threading.Timer | None = None
        self._closed = False
        # One thread starts all children. For the kernel, the thread that starts a process is its
        # parent, and the end of that thread kills the child.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="jobwire-isolation")

    def start(self) -> None:
        """Start the first child, so that a job that no child can find is an error now, not later.

        Raises:
            ConfigError: A child cannot import the module of a job, or does not find the job in
                it. The caller must still call `close`.
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
        """Run a job in a child and wait for its end; the value of a job that keeps it is set.

        Args:
            job: The job, with the fields that middleware has set; they must be JSON values.
            definition: The definition of the job, one of `jobs`.
            timeout: Seconds after which the child is killed, with all processes of its process
                group.

        Raises:
            JobFailed: The job raised an exception.
            JobTimeout: The job was killed because it ran longer than `timeout`.
            JobCrashed: The process of the job died.
            Shutdown: `interrupt` ended the job.
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
            with child.output_of(job):
                members = child.run(task, run, timeout, job)
            if members:
                job.value = Members(members)
        except JobwireError:
            if self._closed or run.kill_at is not None:
                raise Shutdown from None  # the interruption killed its child
            raise
        finally:
            with self._changed:
                del self._runs[ident]
            if child is not None:
                self._release(child)

    def interrupt(self, thread: int) -> bool:
        """Raise `Shutdown` in the job that a thread runs; after a grace period, kill its child.

        Args:
            thread: The identifier of the thread that is in `run`.

        Returns:
            True if that thread runs a job here.
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
        """End all children, and kill those that run a job. It may be called more than once."""
        with self._changed:
            self._closed = True
            children, idle = list(self._children), self._idle
            self._idle = []
            if self._tidier is not None:
                self._tidier.cancel()
            self._changed.notify_all()
        for child in children:
            child.hang_up() if child in idle else child.kill()
        deadline = time.monotonic() + EXIT_TIMEOUT_S
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

    def _acquire(self, run: _Run) -> _ChildProcess:
        """Return a child that is ready; a new one if no child is idle.

        Raises:
            JobCrashed: The new child cannot be used.
            Shutdown: The job was interrupted in the meantime.
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
            self._release(child)  # it died while idle, perhaps because memory ran out

    def _check(self, run: _Run) -> None:
        if self._closed or run.kill_at is not None:
            raise Shutdown

    def _begin(self) -> _ChildProcess:
        """Start a child; the caller has counted it in `_starting`."""
        try:
            child = self._starter.submit(_ChildProcess, self._boot).result()
            with self._changed:
                self._children.add(child)
            return child
        finally:
            with self._changed:
                self._starting -= 1
                self._changed.notify_all()

    def _release(self, child: _ChildProcess) -> None:
        """Make a child idle again, or remove a dead one."""
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
            child.wait(EXIT_TIMEOUT_S)

    def _tidy_later(self) -> None:
        if len(self._idle) > 1 and self._tidier is None:
            self._tidier = threading.Timer(self._idle_limit, self._tidy)
            self._tidier.daemon = True
            self._tidier.start()

    def _tidy(self) -> None:
        """End all children but one that were idle for long."""
        long_ago = time.monotonic() - self._idle_limit
        with self._changed:
            leaving = [child for child in self._idle[:-1] if child.idle_since <= long_ago]
            self._idle = [child for child in self._idle if child not in leaving]
            self._children.difference_update(leaving)
            self._tidier = None
            self._tidy_later()
        for child in leaving:
            child.hang_up()
            child.wait(EXIT_TIMEOUT_S)


class _Run:
    """One call of `run`."""

    __slots__ = ("kill_at",)

    def __init__(self) -> None:
        self.kill_at: float | None = None  # monotonic time; None if not interrupted


class _ChildProcess:
    """A child process, and the channel to it."""

    def __init__(self, boot: Boot) -> None:
        self.idle_since = 0.0
        self._is_killed = False  # a killed process may look alive for a moment
        ours, theirs = socket.socketpair()
        with theirs, ExitStack() as opened:
            self._channel = ours
            captured: dict[str, Any] = {}
            if boot.log is not None:
                log = os.dup(boot.log)
                opened.callback(os.close, log)
                boot = msgspec.structs.replace(boot, log=log)
                captured = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "bufsize": 0}
            self._process = subprocess.Popen(
                [sys.executable, "-c", _SCRIPT, str(theirs.fileno()), json.dumps(sys.path)],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), *([] if boot.log is None else [boot.log])],
                # Its own group: programs that it starts can be killed with it, and Ctrl-C in a
                # terminal reaches only the worker.
                process_group=0,
                **captured,
            )
        pipe, pid = self._process.stdout, self._process.pid
        self._output = None if pipe is None else Output(pipe, pid)
        with suppress(OSError):  # it has already died
            send(ours, boot)

    def output_of(self, job: Job) -> AbstractContextManager[None]:
        """Log the lines that it prints with the job."""
        return nullcontext() if self._output is None else self._output.of(job)

    @property
    def alive(self) -> bool:
        """True if the process has not ended, and was not killed."""
        return not self._is_killed and self._process.poll() is None

    def wait_ready(self) -> None:
        """Wait until it has imported the jobs.

        Raises:
            JobCrashed: It ended, or cannot import the jobs.
        """
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        poll.poll()
        try:
            answer = self._receive()
        except JobCrashed:  # importing runs the user's code
            answer = None
        if isinstance(answer, Ready):
            return
        reason = answer.reason if isinstance(answer, Unfit) else self._cause_of_end()
        self.kill()
        raise JobCrashed(f"their process cannot start: {reason}")

    def run(self, task: Task, run: _Run, timeout: float | None, job: Job) -> bytes:
        """Run a job in it, and return the members of its result; see `Isolation.run`."""
        job.run = "unknown"  # until it answers, it may have emitted
        try:
            with suppress(OSError):  # it has died; `_answer` finds out
                send(self._channel, task)
            answer = self._answer(run, timeout, job)
        except BaseException:  # the time limit, or an exception raised in this thread
            self.kill()
            raise
        if answer is not None:
            job.run = answer.run
            job.progress = answer.progress or job.progress
        if run.kill_at is not None:
            if answer is None:
                self.kill()
            raise Shutdown
        if answer is None:
            cause = self._cause_of_end()
            self.kill()  # the programs that it has left behind
            raise JobCrashed(f"its process {cause}")
        if isinstance(answer, Raised):
            if answer.cancelled:
                raise Cancelled
            if answer.put_off is not None:
                raise Snooze(answer.put_off[0], limit=answer.put_off[1])
            raise JobFailed(
                *(answer.error_class, answer.message, answer.backtrace),
                expected=answer.expected,
                traceback=answer.traceback,
            )
        if answer.has_steps:
            job.steps = {}
        return answer.members

    def _answer(self, run: _Run, timeout: float | None, job: Job) -> Done | Raised | None:
        """Return the end of the job; None if its process died, or ignores an interruption.

        Until then, the job gets the progress that its code reports.

        Raises:
            JobTimeout: The job has not ended in time.
        """
        limit = None if timeout is None else time.monotonic() + timeout
        interrupt_sent = False
        poll = select.poll()  # `select.select` fails for descriptors above 1023
        poll.register(self._channel, select.POLLIN)
        while True:
            now = time.monotonic()
            if run.kill_at is not None:
                limit = run.kill_at
                if not interrupt_sent:
                    interrupt_sent = True
                    with suppress(OSError):
                        send(self._channel, Interrupt())
            left = CHECK_INTERVAL_S if limit is None else min(CHECK_INTERVAL_S, limit - now)
            if left <= 0:
                if interrupt_sent:
                    return None
                raise JobTimeout(f"still running after {timeout:g} s; its process was killed")
            if poll.poll(left * 1000 + 1):
                answer = self._receive()
                if isinstance(answer, Reported):
                    job.progress = answer.progress
                    continue
                return answer if isinstance(answer, Done | Raised) else None
            if not self.alive:
                return None  # a process that it forked keeps the channel open

    def _receive(self) -> Any:
        """Return a message of which a part has arrived; see `receive`."""
        self._channel.settimeout(FRAME_TIMEOUT_S)
        try:
            return receive(self._channel, limit=MAX_FRAME)
        finally:
            self._channel.settimeout(None)

    def hang_up(self) -> None:
        """Close the channel, so that the idle child ends by itself."""
        self._channel.close()

    def kill(self) -> None:
        """Kill it, with all programs that it has started."""
        self._is_killed = True
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> None:
        """Wait until it ends, and kill it if it does not end in time."""
        try:
            self._process.wait(max(timeout, 0))
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        if self._output is not None:
            self._output.finish()

    def _cause_of_end(self) -> str:
        self.wait(EXIT_TIMEOUT_S)
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
            f"{error}; middleware may set fields of an isolated job to JSON values only"
        ) from None


def _boot(jobs: list[JobType[..., Any]], entry: str | None) -> Boot:
    places: dict[str, str] = {}
    files: dict[str, str] = {}
    for definition in jobs:
        place = definition.function.__module__
        module = sys.modules.get(place)
        if place == "__main__":
            spec = getattr(module, "__spec__", None)
            if spec is None:
                raise ConfigError(
                    f"isolated job {definition.name!r} is defined in the main program, which "
                    "cannot be imported again; define it in another module"
                )
            place = spec.name
        importable = None if module is None else find_job(module, definition.name)
        if importable is None or importable[1].function is not definition.function:
            raise ConfigError(
                f"isolated job {definition.name!r}: a child process could not find it in module "
                f"{place}; define the job or its application at the top level of the module"
            )
        places[definition.name] = place
        files |= _loose_file(place, module)
    if entry is not None:
        files |= _loose_file(entry, sys.modules.get(entry))
    root = logging.getLogger()
    is_json = any(isinstance(handler.formatter, JsonFormatter) for handler in root.handlers)
    log_format: LogFormat = "json" if is_json else "human"
    app = jobs[0].app if jobs else None
    return Boot(
        worker=os.getpid(),
        directory=os.getcwd(),
        entry=entry,
        jobs=places,
        files=files,
        url=None if app and app.shards else find_address(app.url if app else None).url,
        served=app.served if app else "",
        log_format=log_format,
        log_level=logging.getLevelName(root.level),
        # In a process that has set up its own log, output goes where that of the process goes.
        log=2 if is_set_up() else None,
    )


def _loose_file(name: str, module: ModuleType | None) -> dict[str, str]:
    """Return the module's file by its name; nothing if the import path leads to the module."""
    file = getattr(module, "__file__", None)
    return {name: os.path.abspath(file)} if file and _is_loose(name, file) else {}


def _is_loose(module: str, file: str) -> bool:
    """True if a module was loaded from a file path, like `jobs.py:app`, not the import path."""
    return "." not in module and not any(
        os.path.abspath(os.path.join(entry or ".", f"{module}.py")) == os.path.abspath(file)
        or os.path.abspath(os.path.join(entry or ".", module, "__init__.py"))
        == os.path.abspath(file)
        for entry in sys.path
    )
