"""The child process of `isolation`: it runs one job at a time for a worker.

Worker and child exchange frames over a socket pair: four bytes of length, then msgpack. They do not
use pickle, so a job cannot make the worker run code.

The main thread of the child runs the jobs, so that signals can interrupt them. A second thread
reads the socket, so that the child notices the end of the worker, even after `kill -9`.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import importlib.util
import math
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from io import TextIOWrapper
from queue import SimpleQueue
from types import FrameType, ModuleType
from typing import Any, TextIO

import msgspec

from jobwire.application.app import App
from jobwire.application.current import running
from jobwire.application.functions import check_result
from jobwire.application.jobtype import JobType
from jobwire.errors import Cancelled, JobCrashed, Shutdown, Snooze, TryAgain
from jobwire.protocol.chains import NEXT
from jobwire.protocol.payload import Job
from jobwire.protocol.progress import JobProgress
from jobwire.protocol.results import keep_of, keep_seconds, value_members
from jobwire.worker.execute.failure import describe, trace_of
from jobwire.worker.execute.joblog import LogFormat, set_up

__all__ = [
    "Boot",
    "Done",
    "Interrupt",
    "Raised",
    "Ready",
    "Reported",
    "Task",
    "Unfit",
    "find_job",
    "receive",
    "send",
    "serve",
]

PROGRESS_INTERVAL_S = 1.0  # between two looks at the progress of the running job
EXIT_TIMEOUT_S = 3.0  # after which an idle child is killed, if threads of jobs keep it alive
_PR_SET_PDEATHSIG = 1
_LENGTH = 4


class Boot(msgspec.Struct, tag=True):
    """The first message to the child: settings with which it can run the jobs."""

    worker: int  # pid of the worker
    directory: str
    entry: str | None  # module that the command line loaded, which may set up what jobs import
    jobs: dict[str, str]  # wire class to module
    files: dict[str, str]  # module to file, for modules that were loaded from a path
    url: str | None  # None: the application has shards
    served: str  # name of the Redis of the worker
    log_format: LogFormat
    log_level: str
    log: int | None  # descriptor of the log; None for standard error


class Task(msgspec.Struct, tag=True):
    """To the child: run this job.

    Attributes:
        name: Wire class of the definition.
        text: The payload as it stands in Redis.
        fields: The fields of the payload after middleware, as JSON.
        queue: Name of the queue that the job came from.
        thread: Name of the worker's thread, for the log.
    """

    name: str
    text: bytes
    fields: bytes
    queue: str
    thread: str


class Interrupt(msgspec.Struct, tag=True):
    """To the child: raise `Shutdown` in the running job."""


class Ready(msgspec.Struct, tag=True):
    """From the child: it has found all jobs."""


class Unfit(msgspec.Struct, tag=True):
    """From the child: it cannot run the jobs, and ends."""

    reason: str


class Done(msgspec.Struct, tag=True):
    """From the child: the job returned; `members` of its result, if the job keeps it."""

    members: bytes = b""
    progress: JobProgress | None = None
    has_steps: bool = False
    run: str = ""


class Reported(msgspec.Struct, tag=True):
    """From the child: the running job has reported its progress."""

    progress: JobProgress


class Raised(msgspec.Struct, tag=True):
    """From the child: the job raised an exception."""

    error_class: str
    message: str
    backtrace: list[str]
    expected: bool
    traceback: str
    put_off: tuple[float, int] | None = None  # seconds and limit of a `Snooze`
    cancelled: bool = False
    progress: JobProgress | None = None
    run: str = ""


ToChild = Boot | Task | Interrupt
FromChild = Ready | Unfit | Done | Raised | Reported
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ToChild | FromChild).decode


def send(channel: socket.socket, message: ToChild | FromChild) -> None:
    """Send one frame.

    Raises:
        OSError: The other process has ended.
    """
    body = _encode(message)
    channel.sendall(len(body).to_bytes(_LENGTH, "big") + body)


def receive(channel: socket.socket, *, limit: float = math.inf) -> Any:
    """Return the next message; None if the other process has ended.

    Raises:
        JobCrashed: The frame has more than `limit` bytes, or does not arrive whole before the
            channel's timeout.
    """
    with suppress(ConnectionError):
        try:
            head = _exactly(channel, _LENGTH)
            size = int.from_bytes(head, "big")
            if size > limit:
                raise JobCrashed(f"its process sent a frame of {size} bytes; the limit is {limit}")
            body = head and _exactly(channel, size)
        except TimeoutError:
            raise JobCrashed("its process sent only a part of a frame") from None
        return _decode(body) if body else None
    return None


def _exactly(channel: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(size - len(parts), 1 << 20))
        if not part:
            return b""
        parts += part
    return bytes(parts)


def find_job(module: ModuleType, name: str) -> tuple[App, JobType[..., Any]] | None:
    """Return the job with this wire class that the module, or an application in it, defines."""
    for value in list(vars(module).values()):
        app = value.app if isinstance(value, JobType) and value.name == name else value
        if isinstance(app, App) and name in app.jobs:
            return app, app.jobs[name]
    return None


def serve(fd: int) -> None:
    """Run jobs for the worker at the other end of the socket `fd`, until the worker closes it."""
    channel = socket.socket(fileno=fd)
    channel.set_inheritable(False)  # programs that a job starts must not keep the channel open
    _JobRunner(channel).serve()


class _JobRunner:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._main = threading.main_thread()
        self._interrupt = False  # True if the worker wants to interrupt the running job
        self._in_user_code = False  # True while the job's own code runs
        self._busy = False  # True from the arrival of a task to its answer
        self._sending = threading.Lock()  # held while one of the two threads sends a frame
        self._job: Job | None = None  # the running job; None while the answer is under way
        self._coroutine: asyncio.Task[Any] | None = None
        self._runner = asyncio.Runner()

    def serve(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTSTP):
            # Only the worker decides to end a job, even if a signal went to all processes. The
            # handler is a function, because programs that a job starts would inherit SIG_IGN.
            signal.signal(number, self._on_signal)
        boot = receive(self._channel)
        if not isinstance(boot, Boot):
            return
        _die_with(boot.worker)
        log = _open_log(boot)
        set_up(boot.log_format, boot.log_level, pid=True, stream=log)
        try:
            jobs = _load(boot)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - importing runs the user's code
            self._answer(Unfit(f"{type(error).__name__}: {error}"))
            return
        if log is not None:  # the application may have set up its own
            set_up(boot.log_format, boot.log_level, pid=True, stream=log)
        self._answer(Ready())
        threading.Thread(target=self._listen, name="jobwire-listen", daemon=True).start()
        while (task := self._tasks.get()) is not None:
            self._main.name = task.thread
            # Each job runs in its own context, so that the next job does not see its variables.
            answer = copy_context().run(self._run, *jobs[task.name], task)
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()  # so that a crash of the next job does not lose this output
            self._busy = False
            self._answer(answer)
        with suppress(Exception):
            self._runner.close()

    def _answer(self, message: FromChild) -> None:
        with self._sending:
            self._job = None
            try:
                send(self._channel, message)
            except OSError:  # the worker has ended, or the job has closed the channel
                os._exit(1)

    def _tell_progress(self, told: JobProgress | None) -> JobProgress | None:
        """Send what the running job has reported since `told`; return what it reported last."""
        with self._sending:
            progress = None if self._job is None else self._job.progress
            if progress is not None and progress is not told:
                with suppress(OSError):  # the worker has ended, as this thread is about to see
                    send(self._channel, Reported(progress))
            return progress

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._channel, select.POLLIN)
        told: JobProgress | None = None
        while True:
            # The code of the job only keeps its progress; it may report a million times.
            while not poll.poll(PROGRESS_INTERVAL_S * 1000 if self._busy else None):
                told = self._tell_progress(told)
            if (message := receive(self._channel)) is None:
                break
            if isinstance(message, Task):
                self._interrupt = False
                self._busy = True
                self._tasks.put(message)
            elif isinstance(message, Interrupt):
                self._interrupt = True
                if self._main.ident is not None:
                    signal.pthread_kill(self._main.ident, signal.SIGTERM)
        if not self._busy:
            self._tasks.put(None)
            time.sleep(EXIT_TIMEOUT_S)
        # The worker is gone, and another worker will run the job.
        with suppress(OSError):
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(1)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGTERM or not self._interrupt or not self._in_user_code:
            return
        self._interrupt = False
        if self._coroutine is not None:
            self._coroutine.get_loop().call_soon_threadsafe(self._coroutine.cancel)
        else:
            raise Shutdown

    def _run(self, app: App, definition: JobType[..., Any], task: Task) -> Done | Raised:
        job = Job(task.text, msgspec.json.decode(task.fields), task.queue)
        function = definition.parameters.receiver(definition.function)
        self._job = job
        with running(job):
            try:
                try:
                    self._in_user_code = True
                    if self._interrupt:
                        raise Shutdown
                    if definition.is_async:
                        # The runner's own context does not have the current job.
                        coroutine = self._await(app, function, job)
                        result = self._runner.run(coroutine, context=copy_context())
                    else:
                        with _around(app, job):
                            result = function(*job.parameters)
                        check_result(definition.name, result)
                finally:
                    self._in_user_code = False
            except BaseException as error:  # noqa: BLE001 - a job may raise anything
                failure = describe(error)
                lines = [_encodable(line) for line in failure.backtrace]
                return Raised(
                    _encodable(failure.error_class),
                    _encodable(failure.message),
                    lines,
                    expected=isinstance(error, TryAgain),
                    traceback=_encodable(trace_of(error)),
                    put_off=(error.seconds, error.limit) if isinstance(error, Snooze) else None,
                    cancelled=isinstance(error, Cancelled),
                    progress=job.progress,
                    run=job.run,
                )
        default = keep_seconds(definition.defaults.get("keep_result"))
        # Plain bytes, because the encoder does not take a subclass.
        wanted = keep_of(job, default) or NEXT in job.fields
        members = bytes(value_members(result)) if wanted else b""
        return Done(members, job.progress, job.steps is not None, job.run)

    async def _await(self, app: App, function: Callable[..., Any], job: Job) -> Any:
        self._coroutine = asyncio.current_task()
        try:
            if self._interrupt:  # the interruption came before the task existed
                raise Shutdown
            with _around(app, job):
                return await function(*job.parameters)
        finally:
            self._coroutine = None


@contextmanager
def _around(app: App, job: Job) -> Iterator[None]:
    with ExitStack() as stack:
        for around in app.around:
            stack.enter_context(around(job))
        yield


def _open_log(boot: Boot) -> TextIO | None:
    """Return the log of the worker, which turns all other output into lines of the log."""
    if boot.log is None:
        return None
    os.set_inheritable(boot.log, False)
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # so that a crash loses no line
    return open(boot.log, "w", encoding="utf-8", errors="backslashreplace")


def _encodable(text: str) -> str:
    """Return text that can be sent; the message of an error may have lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def _die_with(worker: int) -> None:
    """Make the kernel kill this process when the worker ends, on Linux.

    On other systems `_listen` does it, unless a job holds the interpreter's lock.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:  # the worker died before the call
        os._exit(1)


def _load(boot: Boot) -> Mapping[str, tuple[App, JobType[..., Any]]]:
    os.chdir(boot.directory)
    jobs = {}
    if boot.entry is not None:
        _import(boot.entry, boot.files.get(boot.entry))
    for name, place in boot.jobs.items():
        module = _import(place, boot.files.get(place))
        entry = find_job(module, name)
        if entry is None:
            raise LookupError(f"module {place} defines no job {name!r} when it is imported again")
        app, _ = jobs[name] = entry
        if boot.url is not None:
            app.connect(boot.url)
        app.served = boot.served
    return jobs


def _import(name: str, file: str | None) -> ModuleType:
    if name in sys.modules or file is None:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ImportError(f"{file} cannot be imported as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
