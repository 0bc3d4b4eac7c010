"""The child's side of `isolation`: a process that runs one job at a time for a worker.

Both sides speak in frames over a socket pair: four bytes of length, then msgpack. Never pickle:
nothing that a job does to its process makes the worker run anything.

The child's main thread runs the jobs, so that signals can interrupt them. A second thread reads the
socket: it is how the child learns that the worker is gone, also when that was `kill -9`.
"""

from __future__ import annotations

import asyncio
import ctypes
import importlib
import importlib.util
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import copy_context
from queue import SimpleQueue
from types import FrameType, ModuleType
from typing import Any

import msgspec

from jobwire.application.app import App
from jobwire.application.current import running
from jobwire.application.jobtype import JobType
from jobwire.errors import Shutdown, TryAgain
from jobwire.protocol.payload import Job
from jobwire.worker.execute.failure import describe
from jobwire.worker.execute.joblog import LogFormat, set_up

__all__ = [
    "Boot",
    "Done",
    "Interrupt",
    "Raised",
    "Ready",
    "Task",
    "Unfit",
    "find_job",
    "receive",
    "send",
    "serve",
]

LEAVING = 3.0  # seconds an idle child gets to end, whatever threads jobs have left in it
_PR_SET_PDEATHSIG = 1
_LENGTH = 4


class Boot(msgspec.Struct, tag=True):
    """First to the child: how to become able to run these jobs."""

    worker: int  # its pid
    directory: str
    jobs: dict[str, str]  # wire class to module
    files: dict[str, str]  # module to file, for those that were loaded from a path
    url: str
    log_format: LogFormat
    log_level: str


class Task(msgspec.Struct, tag=True):
    """To the child: run this.

    Attributes:
        name: Wire class of the definition.
        text: The payload as found in Redis.
        fields: The payload's fields as middleware left them, as JSON.
        queue: Where it came from.
        thread: Name of the worker's thread, for the log.
    """

    name: str
    text: bytes
    fields: bytes
    queue: str
    thread: str


class Interrupt(msgspec.Struct, tag=True):
    """To the child: raise `Shutdown` in the job that runs."""


class Ready(msgspec.Struct, tag=True):
    """From the child: every job was found."""


class Unfit(msgspec.Struct, tag=True):
    """From the child: it cannot run these jobs, and ends."""

    reason: str


class Done(msgspec.Struct, tag=True):
    """From the child: the job returned."""


class Raised(msgspec.Struct, tag=True):
    """From the child: the job raised."""

    error_class: str
    message: str
    backtrace: list[str]
    expected: bool


ToChild = Boot | Task | Interrupt
FromChild = Ready | Unfit | Done | Raised
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ToChild | FromChild).decode


def send(channel: socket.socket, message: ToChild | FromChild) -> None:
    """Send one frame.

    Raises:
        OSError: The other side is gone.
    """
    body = _encode(message)
    channel.sendall(len(body).to_bytes(_LENGTH, "big") + body)


def receive(channel: socket.socket) -> Any:
    """Return the next message; None if the other side is gone."""
    with suppress(ConnectionError):
        head = _exactly(channel, _LENGTH)
        body = head and _exactly(channel, int.from_bytes(head, "big"))
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
    """Return the job of this wire class that the module, or an application in it, defines."""
    for value in list(vars(module).values()):
        app = value.app if isinstance(value, JobType) and value.name == name else value
        if isinstance(app, App) and name in app.jobs:
            return app, app.jobs[name]
    return None


def serve(fd: int) -> None:
    """Run jobs for the worker at the other end of the socket `fd`, until it closes that."""
    channel = socket.socket(fileno=fd)
    channel.set_inheritable(False)  # what a job starts must not keep the line open
    _Child(channel).serve()


class _Child:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._main = threading.main_thread()
        self._asked = False  # by the worker, for an interruption of the job that runs
        self._inside = False  # in the job's own code
        self._busy = False  # from the task's arrival to its answer
        self._coroutine: asyncio.Task[Any] | None = None
        self._runner = asyncio.Runner()

    def serve(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGTSTP):
            # The worker alone decides when a job ends, also when the signal went to everybody.
            # A function, for being ignored would be inherited by what a job starts.
            signal.signal(number, self._on_signal)
        boot = receive(self._channel)
        if not isinstance(boot, Boot):
            return
        _die_with(boot.worker)
        set_up(boot.log_format, boot.log_level, pid=True)
        try:
            jobs = _load(boot)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - importing runs the user's code
            self._answer(Unfit(f"{type(error).__name__}: {error}"))
            return
        self._answer(Ready())
        threading.Thread(target=self._listen, name="jobwire-listen", daemon=True).start()
        while (task := self._tasks.get()) is not None:
            self._main.name = task.thread
            # In a context of its own: what a job sets is not for the next one.
            answer = copy_context().run(self._run, *jobs[task.name], task)
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()  # nothing of it is lost if the next job crashes
            self._busy = False
            self._answer(answer)
        with suppress(Exception):
            self._runner.close()

    def _answer(self, message: FromChild) -> None:
        with suppress(OSError):  # the listener notices
            send(self._channel, message)

    def _listen(self) -> None:
        while (message := receive(self._channel)) is not None:
            if isinstance(message, Task):
                self._asked = False
                self._busy = True
                self._tasks.put(message)
            elif isinstance(message, Interrupt):
                self._asked = True
                if self._main.ident is not None:
                    signal.pthread_kill(self._main.ident, signal.SIGTERM)
        if not self._busy:
            self._tasks.put(None)
            time.sleep(LEAVING)
        # Nobody is there to hear how the job ends, and it will be run elsewhere.
        with suppress(OSError):
            os.killpg(os.getpid(), signal.SIGKILL)
        os._exit(1)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGTERM or not self._asked or not self._inside:
            return
        self._asked = False
        if self._coroutine is not None:
            self._coroutine.get_loop().call_soon_threadsafe(self._coroutine.cancel)
        else:
            raise Shutdown

    def _run(self, app: App, definition: JobType[..., Any], task: Task) -> Done | Raised:
        job = Job(task.text, msgspec.json.decode(task.fields), task.queue)
        with running(job):
            try:
                try:
                    self._inside = True
                    if self._asked:
                        raise Shutdown
                    if definition.is_async:
                        # The runner has a context of its own, which knows of no job.
                        coroutine = self._await(app, definition, job)
                        self._runner.run(coroutine, context=copy_context())
                    else:
                        with _around(app, job):
                            definition.function(*job.args)
                finally:
                    self._inside = False
            except BaseException as error:  # noqa: BLE001 - the job's own, whatever it is
                failure = describe(error)
                lines = [_encodable(line) for line in failure.backtrace]
                return Raised(
                    _encodable(failure.error_class),
                    _encodable(failure.message),
                    lines,
                    expected=isinstance(error, TryAgain),
                )
        return Done()

    async def _await(self, app: App, definition: JobType[..., Any], job: Job) -> None:
        self._coroutine = asyncio.current_task()
        try:
            if self._asked:  # before there was anything to cancel
                raise Shutdown
            with _around(app, job):
                await definition.function(*job.args)
        finally:
            self._coroutine = None


@contextmanager
def _around(app: App, job: Job) -> Iterator[None]:
    with ExitStack() as stack:
        for around in app.around:
            stack.enter_context(around(job))
        yield


def _encodable(text: str) -> str:
    """Return text that can be sent: an error's message may have lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def _die_with(worker: int) -> None:
    """Have the kernel kill this process with the worker, where it can.

    The listener does it anywhere else, unless the job keeps the interpreter to itself.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:  # it died before that
        os._exit(1)


def _load(boot: Boot) -> Mapping[str, tuple[App, JobType[..., Any]]]:
    os.chdir(boot.directory)
    jobs = {}
    for name, place in boot.jobs.items():
        module = _import(place, boot.files.get(place))
        found = find_job(module, name)
        if found is None:
            raise LookupError(f"module {place} defines no job {name!r} when it is imported again")
        app, _ = jobs[name] = found
        app.connect(boot.url)
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
