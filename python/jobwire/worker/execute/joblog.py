"""The worker's log: one line for each event, with the job that it belongs to.

Each job has two lines, and writing them takes longer than the other work for a quick job. The
first line is written before the job runs, so that the log names the job if it crashes the process.
The second line is written together with the next line of any thread, or right before the outcome
goes to Redis. So lines that a killed process has not written belong to jobs that run again.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, Literal, TextIO

from jobwire.application.current import current_job
from jobwire.protocol.payload import Job, encode
from jobwire.protocol.visible import visible, visible_json

__all__ = [
    "HumanFormatter",
    "JsonFormatter",
    "LogFormat",
    "ended",
    "event",
    "flush",
    "is_set_up",
    "printed",
    "set_up",
]

LogFormat = Literal["human", "json"]
_OPTIONAL = ("bid", "tags")
_EXTRAS = ("elapsed", "returned")


def set_up(
    log_format: LogFormat, level: str, *, pid: bool = False, stream: TextIO | None = None
) -> None:
    """Write all log records of this process to standard error.

    Args:
        log_format: Selects one of the two formatters.
        level: Lowest level to write.
        pid: True if lines for humans show the process id, because several processes share the log.
        stream: Where to write instead of standard error.
    """
    formatter = JsonFormatter() if log_format == "json" else HumanFormatter(pid=pid)
    root = logging.getLogger()
    root.handlers[:] = [_Lines(formatter, stream or sys.stderr)]
    root.setLevel(level.upper())


def is_set_up() -> bool:
    """True if the log of this process is that of `set_up`."""
    return any(isinstance(handler, _Lines) for handler in logging.root.handlers)


def event(logger: logging.Logger, level: int, message: str, **extra: Any) -> None:
    """Log a line about the current job, like `logger.log` but quicker.

    If the application has not changed the set-up of logging, no `LogRecord` is made.
    """
    if logger.isEnabledFor(level):
        lines = _direct(logger)
        if lines is not None:
            lines.write(level, message, extra)
        else:
            logger.log(level, "%s", message, extra=extra)


def ended(logger: logging.Logger, level: int, message: str, **extra: Any) -> None:
    """Log a line about the end of the current job; `flush` or another line writes it."""
    if logger.isEnabledFor(level):
        lines = _direct(logger)
        if lines is not None:
            lines.keep(level, message, extra)
        else:
            logger.log(level, "%s", message, extra=extra)


def printed(logger: logging.Logger, line: str) -> None:
    """Log a line that the code of a job printed, at every level of the log."""
    logger.handle(logger.makeRecord(logger.name, logging.INFO, "", 0, "%s", (line,), None))


def flush() -> None:
    """Write the lines of `ended`, because the outcomes of their jobs are about to be stored."""
    for handler in logging.root.handlers:
        if isinstance(handler, _Lines):
            handler.write_kept()


def _direct(logger: logging.Logger) -> _Lines | None:
    """Return the handler if it is the only one and made by `set_up`, otherwise None."""
    handlers = logging.root.handlers
    if len(handlers) == 1 and not logger.handlers and not logger.filters:
        [handler] = handlers
        return handler if type(handler) is _Lines else None
    return None


class _Lines(logging.StreamHandler[TextIO]):
    """Writes lines to standard error."""

    def __init__(self, formatter: _Formatter, stream: TextIO) -> None:
        super().__init__(stream)
        self.setFormatter(formatter)
        self._line = formatter.line
        self._kept: list[str] = []
        # Kept lines belong to jobs of this process, so a fork must not write them again.
        os.register_at_fork(after_in_child=self._kept.clear)

    def write(self, level: int, message: str, extra: Mapping[str, Any]) -> None:
        """Write the kept lines, then a line without a `LogRecord`."""
        line = self._line(time.time(), _name(level), _thread.name, message, extra)
        with self.lock or nullcontext():
            self._put(line + "\n")

    def keep(self, level: int, message: str, extra: Mapping[str, Any]) -> None:
        """Keep a line, to be written before the next one."""
        line = self._line(time.time(), _name(level), _thread.name, message, extra)
        self._kept.append(line + "\n")

    def write_kept(self) -> None:
        """Write the kept lines."""
        if self._kept:
            with self.lock or nullcontext():
                self._put("")

    def emit(self, record: logging.LogRecord) -> None:
        """Write the kept lines, then a record; `logging` calls this with the lock held."""
        if self._kept:
            self._put("")
        super().emit(record)

    def _put(self, text: str) -> None:
        kept = self._kept
        if kept:
            count = len(kept)  # other threads may append in the meantime, without the lock
            text = "".join(kept[:count]) + text
            del kept[:count]
        # If the log cannot be written, for example to a full disk, the job must not fail.
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):
            pass


class _Formatter(logging.Formatter):
    """Formats one event as one line; the formats differ, the content does not."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; a traceback may follow it."""
        return self.line(
            record.created,
            record.levelname,
            record.threadName or "",
            record.getMessage(),
            record.__dict__,
            _trace(self, record),
        )

    def line(
        self,
        created: float,
        level: str,
        thread: str,
        message: str,
        extra: Mapping[str, Any],
        trace: str = "",
    ) -> str:
        """Return one line.

        Args:
            created: Epoch seconds.
            level: Name of the level.
            thread: Name of the thread.
            message: Text of the event.
            extra: Attributes of the event; those in `_EXTRAS` become part of the line.
            trace: A traceback or a stack.
        """
        raise NotImplementedError


class HumanFormatter(_Formatter):
    """`2026-11-20T18:12:51.872Z INFO    default-3 done class=HardJob jid=... elapsed=0.012`

    Args:
        pid: True to put the process id before the thread: `4711/default-3`.
    """

    def __init__(self, *, pid: bool = False) -> None:
        super().__init__()
        self._prefix = f"{os.getpid()}/" if pid else ""
        self._origin = lru_cache(maxsize=256)(self._level_and_thread)

    def line(
        self,
        created: float,
        level: str,
        thread: str,
        message: str,
        extra: Mapping[str, Any],
        trace: str = "",
    ) -> str:
        """Return one line; the indented lines of a traceback follow it."""
        job = current_job()
        words = "" if job is None else _words(job)
        for name in _EXTRAS:
            value = extra.get(name)
            if value is not None:
                words += f" {name}={visible(str(value))}"
        head = f"{_timestamp(created)} {self._origin(level, thread)} {visible(message)}{words}"
        if trace:
            # Indented, so that no text in it can be taken for the next line of the log.
            head += "".join(f"\n  {visible(below)}" for below in trace.split("\n"))
        return head

    def _level_and_thread(self, level: str, thread: str) -> str:
        return visible(f"{level:<7} {self._prefix}{_tid(thread)}")


class JsonFormatter(_Formatter):
    """One JSON object per line: ts, pid, tid, lvl, msg, ctx, as in Sidekiq's JSON log."""

    def line(
        self,
        created: float,
        level: str,
        thread: str,
        message: str,
        extra: Mapping[str, Any],
        trace: str = "",
    ) -> str:
        """Return one line."""
        entry: dict[str, Any] = {
            "ts": _timestamp(created),
            "pid": os.getpid(),
            "tid": _tid(thread),
            "lvl": level,
            "msg": _encodable(message),
        }
        job = current_job()
        context = {} if job is None else _context(job)
        for name in _EXTRAS:
            value = extra.get(name)
            if value is not None:
                context[name] = value
        if context:
            entry["ctx"] = context
        if trace:
            entry["error"] = _encodable(trace)
        return visible_json(encode(entry).decode())


def _context(job: Job) -> dict[str, Any]:
    """Return the fields of a line about its job."""
    context: dict[str, Any] = {"class": job.display_class, "jid": job.jid, "queue": job.queue}
    for field in _OPTIONAL:
        if value := job.get(field):
            context[field] = value
    return context


@lru_cache(maxsize=1)  # most lines are about the same job as the line before
def _words(job: Job) -> str:
    """Return the fields of a line about its job, for humans."""
    words = f" class={job.display_class} jid={job.jid} queue={job.queue}"
    for field in _OPTIONAL:
        if value := job.get(field):
            words += f" {field}={_word(value)}"
    return visible(words)


def _timestamp(created: float) -> str:
    return _moment(int(created * 1000))


@lru_cache(maxsize=4)  # a busy worker writes many lines in a millisecond
def _moment(milliseconds: int) -> str:
    seconds, fraction = divmod(milliseconds, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction:03d}Z"


class _Thread(threading.local):
    """The name of the current thread, which takes long to look up for every line."""

    def __init__(self) -> None:
        self.name = threading.current_thread().name


_thread = _Thread()


_name = lru_cache(maxsize=16)(logging.getLevelName)


def _tid(thread: str) -> str:
    return thread.removeprefix("jobwire-")


def _word(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _encodable(text: str) -> str:
    """Return text that JSON can hold; the message of an error may have lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    stack: str = getattr(record, "stack", "")
    return stack or (formatter.formatException(record.exc_info) if record.exc_info else "")
