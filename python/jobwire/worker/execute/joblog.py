"""The worker's log: one line an event, with the job it belongs to.

There are two lines for each job, and to write them takes longer than the worker needs for the rest
of a quick job. The first is written before the job runs: should it take the process down, the log
says which one it was. The second waits for whichever comes first: the next line of anybody, or the
moment before the job's outcome goes to Redis. So what a process that is killed has not written is
about jobs that run again.
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

__all__ = ["HumanFormatter", "JsonFormatter", "LogFormat", "ended", "event", "flush", "set_up"]

LogFormat = Literal["human", "json"]
_OPTIONAL = ("bid", "tags")
_EXTRAS = ("elapsed", "returned")
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127)}
_CONTROL |= {ord(char): repr(char)[1:-1] for char in "\t\n\r"}


def set_up(log_format: LogFormat, level: str, *, pid: bool = False) -> None:
    """Send everything that is logged in this process to standard error.

    Args:
        log_format: See the two formatters.
        level: From which on.
        pid: Whether lines for humans name the process, since others write beside it.
    """
    formatter = JsonFormatter() if log_format == "json" else HumanFormatter(pid=pid)
    root = logging.getLogger()
    root.handlers[:] = [_Lines(formatter)]
    root.setLevel(level.upper())


def event(logger: logging.Logger, level: int, message: str, **extra: Any) -> None:
    """Log a line about the current job, as `logger.log` does, but quickly.

    Where nobody but us has set up logging, the line is written directly.
    """
    if logger.isEnabledFor(level):
        lines = _direct(logger)
        if lines is not None:
            lines.write(level, message, extra)
        else:
            logger.log(level, "%s", message, extra=extra)


def ended(logger: logging.Logger, level: int, message: str, **extra: Any) -> None:
    """Log a line about the end of the current job, at the latest with the next `flush`."""
    if logger.isEnabledFor(level):
        lines = _direct(logger)
        if lines is not None:
            lines.keep(level, message, extra)
        else:
            logger.log(level, "%s", message, extra=extra)


def flush() -> None:
    """Write what `ended` has kept: the outcomes of those jobs are about to be stored."""
    for handler in logging.root.handlers:
        if isinstance(handler, _Lines):
            handler.write_kept()


def _direct(logger: logging.Logger) -> _Lines | None:
    """Return the only handler, if it is ours."""
    handlers = logging.root.handlers
    if len(handlers) == 1 and not logger.handlers and not logger.filters:
        [handler] = handlers
        return handler if type(handler) is _Lines else None
    return None


class _Lines(logging.StreamHandler[TextIO]):
    """Writes lines to standard error."""

    def __init__(self, formatter: _Formatter) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(formatter)
        self._line = formatter.line
        self._kept: list[str] = []
        # What is kept is written by the process whose jobs it is about.
        os.register_at_fork(after_in_child=self._kept.clear)

    def write(self, level: int, message: str, extra: Mapping[str, Any]) -> None:
        """Write a line that never was a `LogRecord`, and before it what was kept."""
        line = self._line(time.time(), _name(level), _thread(), message, extra)
        with self.lock or nullcontext():
            self._put(line + "\n")

    def keep(self, level: int, message: str, extra: Mapping[str, Any]) -> None:
        """Have a line written before the next one."""
        line = self._line(time.time(), _name(level), _thread(), message, extra)
        self._kept.append(line + "\n")

    def write_kept(self) -> None:
        """Write what was kept."""
        if self._kept:
            with self.lock or nullcontext():
                self._put("")

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, and before it what was kept. With the lock held, as `logging` does it."""
        if self._kept:
            self._put("")
        super().emit(record)

    def _put(self, text: str) -> None:
        kept = self._kept
        if kept:
            count = len(kept)  # others may append meanwhile, without the lock
            text = "".join(kept[:count]) + text
            del kept[:count]
        # A log that cannot be written, as to a full disk, must not cost the job that it is about.
        try:
            self.stream.write(text)
            self.stream.flush()
        except (OSError, ValueError):
            pass


class _Formatter(logging.Formatter):
    """One event, one line. What it says is the same, however it is written."""

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
            level: Its name.
            thread: Its name.
            message: What happened.
            extra: Of its `_EXTRAS` those that are there become part of the line.
            trace: A traceback or a stack.
        """
        raise NotImplementedError


class HumanFormatter(_Formatter):
    """`2026-11-20T18:12:51.872Z INFO    default-3 done class=HardJob jid=... elapsed=0.012`

    Args:
        pid: Whether the process stands before the thread: `4711/default-3`.
    """

    def __init__(self, *, pid: bool = False) -> None:
        super().__init__()
        self._prefix = f"{os.getpid()}/" if pid else ""
        self._who = lru_cache(maxsize=256)(self._level_and_thread)

    def line(
        self,
        created: float,
        level: str,
        thread: str,
        message: str,
        extra: Mapping[str, Any],
        trace: str = "",
    ) -> str:
        """Return one line; a traceback follows it."""
        job = current_job()
        words = "" if job is None else _words(job)
        for name in _EXTRAS:
            value = extra.get(name)
            if value is not None:
                words += f" {name}={_visible(str(value))}"
        head = f"{_timestamp(created)} {self._who(level, thread)} {_visible(message)}{words}"
        return f"{head}\n{trace}" if trace else head

    def _level_and_thread(self, level: str, thread: str) -> str:
        return _visible(f"{level:<7} {self._prefix}{_tid(thread)}")


class JsonFormatter(_Formatter):
    """One JSON object a line: ts, pid, tid, lvl, msg, ctx, as Sidekiq's JSON log has them."""

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
        return encode(entry).decode()


def _context(job: Job) -> dict[str, Any]:
    """Return what a line says about its job."""
    context: dict[str, Any] = {"class": job.display_class, "jid": job.jid, "queue": job.queue}
    for field in _OPTIONAL:
        if value := job.get(field):
            context[field] = value
    return context


@lru_cache(maxsize=1)  # most lines are about the job that the line before was about
def _words(job: Job) -> str:
    """Return the same for people."""
    words = f" class={job.display_class} jid={job.jid} queue={job.queue}"
    for field in _OPTIONAL:
        if value := job.get(field):
            words += f" {field}={_word(value)}"
    return _visible(words)


def _timestamp(created: float) -> str:
    return _moment(int(created * 1000))


@lru_cache(maxsize=4)  # there are many lines a millisecond, if they matter
def _moment(milliseconds: int) -> str:
    seconds, fraction = divmod(milliseconds, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction:03d}Z"


def _thread() -> str:
    return threading.current_thread().name


_name = lru_cache(maxsize=16)(logging.getLevelName)


def _tid(thread: str) -> str:
    return thread.removeprefix("jobwire-")


def _word(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _visible(text: str) -> str:
    """Return text that stays on its line and does nothing to a terminal."""
    return text if text.isprintable() else text.translate(_CONTROL)


def _encodable(text: str) -> str:
    """Return text that JSON can hold: an error's message may have lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    stack: str = getattr(record, "stack", "")
    return stack or (formatter.formatException(record.exc_info) if record.exc_info else "")
