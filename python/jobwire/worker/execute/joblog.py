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
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, Literal, TextIO

from jobwire.application.current import current_job
from jobwire.application.logs import JobFilter, job_fields
from jobwire.text import visible
from jobwire.worker.execute.failure import trace_of, user_trace
from jobwire.worker.execute.log_format import (
    HumanFormatter,
    JsonFormatter,
    LineFormatter,
    Told,
    visible_lines,
    words,
)

__all__ = [
    "LogFormat",
    "ended",
    "event",
    "flush",
    "insist",
    "is_set_up",
    "printed",
    "set_up",
    "set_up_own",
]

LogFormat = Literal["human", "json"]
_log = logging.getLogger("jobwire.worker")


def set_up(
    log_format: LogFormat, level: str, *, pid: bool = False, stream: TextIO | None = None
) -> None:
    """Write all log records of this process to standard error.

    Args:
        log_format: Selects one of the two formatters. Lines for humans are shorter on a terminal.
        level: Lowest level to write.
        pid: True if lines for humans show the process id, because several processes share the log.
        stream: Where to write instead of standard error.
    """
    stream = stream or sys.stderr
    formatter = (
        JsonFormatter() if log_format == "json" else HumanFormatter(pid=pid, short=stream.isatty())
    )
    for logger in _own_loggers():
        logger.handlers.clear()
        logger.propagate, logger.disabled = True, False
    root = logging.getLogger()
    root.handlers[:] = [_Lines(formatter, stream)]
    root.setLevel(level.upper())


def set_up_own() -> None:
    """Write the records of jobwire to standard error, unless this program has a log for them.

    This is for a worker inside another program, whose log is its own.
    """
    own = logging.getLogger("jobwire")
    if not own.hasHandlers():
        own.addHandler(_Lines(HumanFormatter(short=sys.stderr.isatty()), sys.stderr))
        own.setLevel(own.level or logging.INFO)


def insist(log_format: LogFormat | None, level: str | None, *, pid: bool = False) -> None:
    """Repair what an application that has its own log has changed since `set_up`.

    Its handlers stay, but the loggers of jobwire are not disabled: `logging.config.dictConfig`
    disables all loggers that it does not name.

    Args:
        log_format: The format that the operator has asked for, which replaces the handlers.
        level: The level that the operator has asked for.
        pid: See `set_up`.
    """
    root = logging.getLogger()
    if log_format is not None:
        replaces = not is_set_up()
        set_up(log_format, level or logging.getLevelName(root.level), pid=pid)
        for logger in _loggers():
            logger.handlers[:] = [one for one in logger.handlers if not _on_terminal(one)]
        if replaces:
            _log.info("log_format %s replaces the log handlers of the application", log_format)
    for logger in _own_loggers():
        logger.disabled = False
        if level is not None:
            logger.setLevel(logging.NOTSET)
    if level is not None:
        root.setLevel(level.upper())


def is_set_up() -> bool:
    """True if the log of this process is that of `set_up`."""
    return any(isinstance(handler, _Lines) for handler in logging.root.handlers)


def event(logger: logging.Logger, level: int, message: str, **extra: Any) -> None:
    """Log a line about the current job, like `logger.log` but quicker.

    If the application has not changed the set-up of logging, no `LogRecord` is made. Otherwise the
    record has the job in its attributes, and also in its message unless all handlers show those.
    """
    if logger.isEnabledFor(level):
        lines = _direct(logger)
        if lines is not None:
            lines.write(level, message, extra)
        else:
            _handle(logger, level, message, extra)


def ended(
    logger: logging.Logger,
    level: int,
    message: str,
    *,
    error: BaseException | None = None,
    **extra: Any,
) -> None:
    """Log a line about the end of the current job; `flush` or another line writes it.

    Args:
        logger: The logger.
        level: The level.
        message: The text.
        error: An exception whose traceback follows.
        **extra: See `event`.
    """
    if logger.isEnabledFor(level):
        lines = _direct(logger)
        if lines is not None:
            lines.keep(level, message, extra, "" if error is None else trace_of(error))
        else:
            _handle(logger, level, message, extra, error)


def printed(logger: logging.Logger, line: str) -> None:
    """Log a line that the code of a job printed, at every level of the log."""
    logger.handle(_record(logger, logging.INFO, line, {}))


def flush() -> None:
    """Write the lines of `ended`, because the outcomes of their jobs are about to be stored."""
    for handler in logging.root.handlers:
        if isinstance(handler, _Lines):
            handler.write_kept()


def _direct(logger: logging.Logger) -> _Lines | None:
    """Return the handler if it is the only one and made by `set_up`, otherwise None."""
    handlers = logging.root.handlers
    if len(handlers) == 1 and not logger.handlers and not logger.filters:
        parent = logger.parent
        if parent is not logging.root and parent is not None and parent.handlers:
            return None  # of the logger `jobwire`
        [handler] = handlers
        return handler if type(handler) is _Lines else None
    return None


def _handle(
    logger: logging.Logger,
    level: int,
    message: str,
    extra: Mapping[str, Any],
    error: BaseException | None = None,
) -> None:
    message = visible(message)
    text = Told(message + words(extra, with_identity=not _show_job(logger)))
    text.plain = message
    record = _record(logger, level, text, extra)
    if error is not None:
        record.exc_info = (type(error), error, user_trace(error))
        # Formatters take this text if there is one; that of the error may hold anything.
        record.exc_text = visible_lines(trace_of(error))
    logger.handle(record)


def _handlers(logger: logging.Logger) -> list[logging.Handler]:
    """Return the handlers that get the records of a logger, without that of `set_up`."""
    handlers: list[logging.Handler] = []
    one: logging.Logger | None = logger
    while one is not None:
        handlers += one.handlers
        one = one.parent if one.propagate else None
    return [handler for handler in handlers if type(handler) is not _Lines]


def _show_job(logger: logging.Logger) -> bool:
    """True if all other handlers of a logger show the attributes of the job."""
    handlers = _handlers(logger)
    return bool(handlers) and all(map(_shows_job, handlers))


def _on_terminal(handler: logging.Handler) -> bool:
    """True if a handler of the application writes to standard output or standard error."""
    stream = getattr(handler, "stream", None) or getattr(
        getattr(handler, "console", None),
        "file",
        None,  # of `rich`
    )
    standard = (sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__)
    return (
        stream is not None
        and any(stream is one for one in standard)
        and (type(handler) is not _Lines)
    )


def _shows_job(handler: logging.Handler) -> bool:
    """True if the format names the id of the job, or a formatter for all attributes gets it."""
    text = getattr(handler.formatter, "_fmt", None)
    if type(handler.formatter) is logging.Formatter:
        return "jid" in (text or "")
    return "jid" in str(text) or any(isinstance(part, JobFilter) for part in handler.filters)


def _record(
    logger: logging.Logger, level: int, message: str, extra: Mapping[str, Any]
) -> logging.LogRecord:
    """Return a record with the attributes of the current job.

    Unlike those of `extra`, they may be there already, from a factory of the application.
    """
    record = logger.makeRecord(logger.name, level, __file__, 0, "%s", (message,), None)
    known = {name: value for name, value in extra.items() if value is not None}
    record.__dict__.update({**job_fields(current_job()), **known})
    return record


def _loggers() -> Iterator[logging.Logger]:
    for logger in [*logging.root.manager.loggerDict.values()]:
        if isinstance(logger, logging.Logger):
            yield logger


def _own_loggers() -> Iterator[logging.Logger]:
    return (logger for logger in _loggers() if f"{logger.name}.".startswith("jobwire."))


class _Lines(logging.StreamHandler[TextIO]):
    """Writes lines to standard error."""

    def __init__(self, formatter: LineFormatter, stream: TextIO) -> None:
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

    def keep(self, level: int, message: str, extra: Mapping[str, Any], trace: str) -> None:
        """Keep a line, to be written before the next one."""
        line = self._line(time.time(), _name(level), _thread.name, message, extra, trace)
        self._kept.append(line + "\n")

    def write_kept(self) -> None:
        """Write the kept lines."""
        if self._kept:
            with self.lock or nullcontext():
                self._put("")

    def emit(self, record: logging.LogRecord) -> None:
        """Write the kept lines, then a record; `logging` calls this with the lock held.

        A record that a handler of the application writes to the same place is left to that one.
        """
        if self._kept:
            self._put("")
        logger = logging.root.manager.loggerDict.get(record.name)
        others = _handlers(logger if isinstance(logger, logging.Logger) else logging.root)
        if not any(record.levelno >= one.level and _on_terminal(one) for one in others):
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


class _Thread(threading.local):
    """The name of the current thread, which takes long to look up for every line."""

    def __init__(self) -> None:
        self.name = threading.current_thread().name


_thread = _Thread()


_name = lru_cache(maxsize=16)(logging.getLevelName)
