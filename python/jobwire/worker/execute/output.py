"""Output of the child of an isolated job, as lines of the worker's log."""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import IO

from jobwire.application.current import running
from jobwire.protocol.payload import Job
from jobwire.worker.execute.joblog import printed

__all__ = ["Output"]

READ_SIZE = 1 << 16  # capacity of a pipe, so one read takes all that was written before it
MAX_LINE_CHARS = 1 << 16
JOIN_TIMEOUT_S = 0.1
_log = logging.getLogger("jobwire.worker")


class Output:
    """Logs each line that comes through a pipe, with the job that prints it.

    A program that a job has started and left behind may keep the pipe open; its lines are logged
    until it ends.

    Args:
        pipe: The reading end, unbuffered; closed when no process has the other end.
        pid: The child, for the log.
    """

    def __init__(self, pipe: IO[bytes], pid: int) -> None:
        os.set_blocking(pipe.fileno(), False)
        self._pipe = pipe
        self._lock = threading.Lock()  # Guards `_job`, `_begun`, `_ended` and reading.
        self._job: Job | None = None
        self._begun = b""  # a line without its end
        self._ended = False
        self._thread = threading.Thread(
            target=self._listen, name=f"jobwire-isolated-{pid}", daemon=True
        )
        self._thread.start()

    @contextmanager
    def of(self, job: Job) -> Iterator[None]:
        """Log the lines of this time with the job."""
        self._change_job(job)
        try:
            yield
        finally:
            self._change_job(None)

    def finish(self) -> None:
        """Log the last lines, after the end of the child."""
        self._change_job(None)
        self._thread.join(JOIN_TIMEOUT_S)

    def _change_job(self, job: Job | None) -> None:
        with self._lock:
            self._read()
            self._put(self._begun)
            self._begun = b""
            self._job = job

    def _listen(self) -> None:
        poll = select.poll()
        poll.register(self._pipe, select.POLLIN)
        while not self._ended:
            poll.poll()
            with self._lock:
                self._read()
        self._pipe.close()

    def _read(self) -> None:
        if self._ended:
            return
        try:
            data = os.read(self._pipe.fileno(), READ_SIZE)
        except BlockingIOError:
            return
        *lines, self._begun = (self._begun + data).split(b"\n")
        for line in lines:
            self._put(line)
        self._ended = not data
        if self._ended or len(self._begun) > MAX_LINE_CHARS:
            self._put(self._begun)
            self._begun = b""

    def _put(self, line: bytes) -> None:
        if text := line.removesuffix(b"\r").decode("utf-8", "backslashreplace"):
            with nullcontext() if self._job is None else running(self._job):
                printed(_log, text)
