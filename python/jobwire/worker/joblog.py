"""The worker's log: one line an event, with the job it belongs to."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import nullcontext, suppress
from functools import lru_cache
from typing import Any, Literal, TextIO

from jobwire.current import current_job
from jobwire.payload import encode

__all__ = ["HumanFormatter", "JsonFormatter", "LogFormat", "event", "set_up"]

LogFormat = Literal["human", "json"]
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

    There are two for each job, and `logging` takes longer for a line than the worker for the rest
    of a quick job. So where nobody but us has set up logging, the line is written directly.
    """
    if not logger.isEnabledFor(level):
        return
    handlers = logging.root.handlers
    direct = (
        len(handlers) == 1
        and isinstance(handlers[0], _Lines)
        and not logger.handlers
        and not logger.filters
    )
    if direct:
        handlers[0].write(level, message, extra)  # type: ignore[attr-defined]  # see above
    else:
        logger.log(level, "%s", message, extra=extra)


class _Lines(logging.StreamHandler[TextIO]):
    """Writes lines to standard error."""

    def __init__(self, formatter: _Formatter) -> None:
        super().__init__(sys.stderr)
        self.setFormatter(formatter)
        self._line = formatter.line

    def write(self, level: int, message: str, extra: Mapping[str, Any]) -> None:
        """Write a line that never was a `LogRecord`."""
        thread = threading.current_thread().name
        line = self._line(time.time(), logging.getLevelName(level), thread, message, extra)
        # A log that cannot be written, as to a full disk, must not cost the job that it is about.
        with self.lock or nullcontext(), suppress(OSError, ValueError):
            self.stream.write(line + self.terminator)
            self.flush()


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
        context = "".join(f" {name}={_word(value)}" for name, value in _context(extra).items())
        tid = self._prefix + _tid(thread)
        head = f"{_timestamp(created)} {level:<7} {tid} {_visible(message)}{context}"
        return f"{head}\n{trace}" if trace else head


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
        if context := _context(extra):
            entry["ctx"] = context
        if trace:
            entry["error"] = _encodable(trace)
        return encode(entry).decode()


def _context(extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a line says besides its message: job, time it took, times put back before."""
    context: dict[str, Any] = {}
    job = current_job()
    if job is not None:
        context = {"class": job.display_class, "jid": job.jid, "queue": job.queue}
        for field in ("bid", "tags"):
            if job.get(field):
                context[field] = job[field]
    for name in _EXTRAS:
        value = extra.get(name)
        if value is not None:
            context[name] = value
    return context


@lru_cache(maxsize=4)
def _second(moment: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment))


def _timestamp(created: float) -> str:
    return f"{_second(int(created))}.{int(created * 1000) % 1000:03d}Z"


def _tid(thread: str) -> str:
    return thread.removeprefix("jobwire-")


def _word(value: object) -> str:
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return _visible(str(value))


def _visible(text: str) -> str:
    """Return text that stays on its line and does nothing to a terminal."""
    return text if text.isprintable() else text.translate(_CONTROL)


def _encodable(text: str) -> str:
    """Return text that JSON can hold: an error's message may have lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    stack: str = getattr(record, "stack", "")
    return stack or (formatter.formatException(record.exc_info) if record.exc_info else "")
