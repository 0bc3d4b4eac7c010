"""A file with the jobs that wait for Redis, which survives the end of the process.

Each line is a JSON object: a job, or the fate of the oldest ones, so that the next process knows
which jobs are left, and which may have been written when this process died. A line without its end
was being written at the time: its push had not returned.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from jobwire.errors import ConfigError
from jobwire.protocol.normalize import ReadyPayload
from jobwire.protocol.unique import lock_in

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Leftover", "SpoolFile", "check_directory", "left_in", "new_file"]

SUFFIX = ".jobs"

_log = logging.getLogger("jobwire.client")


class _Line(msgspec.Struct, omit_defaults=True):
    """A line of the file: a job with the time of its push, or a mark with a number of jobs."""

    text: str = ""
    jid: str = ""
    queue: str = ""
    at: float | None = None
    since: float = 0.0
    sending: int = 0  # so many of the oldest jobs are being sent
    sent: bool = False  # the attempt has ended
    done: int = 0  # so many of the oldest jobs are written, or given up


class Leftover(NamedTuple):
    """A file that another process has left."""

    file: SpoolFile
    jobs: list[tuple[ReadyPayload, float]]
    """The jobs in order, each with the time of its push."""
    unsure: int
    """Number of the first ones that may have been written."""


class SpoolFile:
    """An open file, which no other process uses. See `new_file` and `left_in`."""

    def __init__(self, path: Path, descriptor: int, *, sync: bool) -> None:
        self.path = path
        self._descriptor = descriptor
        self._sync = sync

    def add(self, jobs: Sequence[ReadyPayload], *, since: float) -> None:
        """Append jobs; afterwards they are on the disk.

        Raises:
            OSError: The disk is full, or broken.
        """
        self._write(
            _Line(job.text.decode(), job.jid, job.queue, job.at, since=since) for job in jobs
        )

    def sending(self, count: int) -> None:
        """Note that the oldest jobs are being sent."""
        self._write([_Line(sending=count)])

    def done(self, count: int) -> None:
        """Note the end of an attempt: so many of the oldest jobs are written, or given up."""
        self._write([_Line(done=count, sent=True)])

    def remove(self) -> None:
        """Remove the file, whose jobs are all done."""
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Leave the file to the next process."""
        os.close(self._descriptor)

    def _write(self, lines: Sequence[_Line] | Iterator[_Line]) -> None:
        start = os.lseek(self._descriptor, 0, os.SEEK_END)
        text = memoryview(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
        try:
            while text:
                text = text[os.write(self._descriptor, text) :]
            if self._sync:
                os.fsync(self._descriptor)
        except OSError:
            os.ftruncate(self._descriptor, start)  # no half of a line before the next one
            raise


def check_directory(directory: Path) -> None:
    """Make a directory for files, if it does not exist.

    Raises:
        ConfigError: It cannot be used.
    """
    if fcntl is None:
        raise ConfigError("spool: this system has no file locks (fcntl); leave spool out")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"spool: the directory cannot be made: {error}") from None
    if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
        raise ConfigError(f"spool: this process may not write to {str(directory)!r}")


def new_file(directory: Path, *, sync: bool) -> SpoolFile:
    """Make a file of this process.

    Args:
        directory: The directory, after `check_directory`.
        sync: True to wait after each write until the disk has it.

    Raises:
        OSError: The disk is full, or the directory has gone.
    """
    path = directory / f"{os.getpid()}-{secrets.token_hex(4)}{SUFFIX}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    return SpoolFile(path, descriptor, sync=sync)


def left_in(directory: Path, *, sync: bool) -> Iterator[Leftover]:
    """Yield the files of processes that have ended, the oldest first; they are ours from then on.

    Args:
        directory: The directory, after `check_directory`.
        sync: See `new_file`.
    """
    for path in sorted(directory.glob(f"*{SUFFIX}"), key=_age):
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:  # another process was faster
            continue
        except OSError as error:
            raise ConfigError(f"spool: a file cannot be read: {error}") from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # its process lives
            os.close(descriptor)
            continue
        if not path.exists():  # another process has written its jobs and removed it
            os.close(descriptor)
            continue
        jobs, unsure, end, rest = _read(path)
        if b"\n" in rest:  # more than a line that was being written
            broken = path.with_suffix(".broken")
            broken.write_bytes(rest)
            _log.error("a line of the spool cannot be read; it and all after it are in %s", broken)
        os.ftruncate(descriptor, end)
        yield Leftover(SpoolFile(path, descriptor, sync=sync), jobs, unsure)


def _age(path: Path) -> float:
    try:
        return path.stat().st_ctime
    except FileNotFoundError:
        return 0.0


def _read(path: Path) -> tuple[list[tuple[ReadyPayload, float]], int, int, bytes]:
    """Return the jobs that are left, how many of them are unsure, the end of the last line, and
    the bytes after it."""
    jobs: list[tuple[ReadyPayload, float]] = []
    done = unsure = end = 0
    whole = path.read_bytes()
    while newline := whole.find(b"\n", end) + 1:
        try:
            line = msgspec.json.decode(whole[end:newline], type=_Line)
        except msgspec.DecodeError:
            break
        end = newline
        if line.text:
            text = line.text.encode()
            job = ReadyPayload(line.jid, line.queue, line.at, text, lock_in(text))
            jobs.append((job, line.since))
        elif line.sending:
            unsure = line.sending
        else:
            unsure = 0
            done += line.done
    return jobs[done:], unsure, end, whole[end:]
