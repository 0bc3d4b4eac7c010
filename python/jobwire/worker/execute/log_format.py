"""The two forms of a line of the log: for people and for programs. [SEC-5] [SEC-6]"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from jobwire.application.current import current_job
from jobwire.protocol.gitlab import CORRELATION_ID, META
from jobwire.protocol.payload import Job, encode
from jobwire.text import visible, visible_json

__all__ = ["HumanFormatter", "JsonFormatter", "LineFormatter", "Told", "visible_lines", "words"]

_OPTIONAL = ("bid", CORRELATION_ID, "tags")
_EXTRAS = ("elapsed", "returned")


class Told(str):
    """A message with words about its job, for handlers that do not show the job themselves."""

    plain: str
    """The message alone."""


class LineFormatter(logging.Formatter):
    """Formats one event as one line; the formats differ, the content does not."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; a traceback may follow it."""
        return self.line(
            record.created,
            record.levelname,
            record.threadName or "",
            _message(record),
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


class HumanFormatter(LineFormatter):
    """`2026-11-20T18:12:51.872Z INFO    default-3 done class=HardJob jid=... elapsed=0.012`

    Args:
        pid: True to put the process id before the thread: `4711/default-3`.
        short: True for lines that fit a terminal: local time without the date, and neither thread
            nor queue. `18:12:51 INFO    done class=HardJob jid=... elapsed=0.012`
    """

    def __init__(self, *, pid: bool = False, short: bool = False) -> None:
        super().__init__()
        self._short = short
        self._pid = f"{os.getpid()}" if pid else ""
        self._origin = lru_cache(maxsize=256)(self._level_and_thread)
        self._time = _clock_time if short else _timestamp

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
        origin, text = self._origin(level, thread), visible(message)
        head = f"{self._time(created)} {origin} {text}{words(extra, with_queue=not self._short)}"
        if trace:
            # Indented, so that no text in it can be taken for the next line of the log.
            # The lines before the last one, the calls, are the same for each failure at a place.
            calls, _, last = trace.rstrip("\n").rpartition("\n")
            head += (_indented(calls) if calls else "") + "\n  " + visible(last)
        return head

    def _level_and_thread(self, level: str, thread: str) -> str:
        if self._short:
            return visible(f"{level:<7} {self._pid}").rstrip() if self._pid else f"{level:<7}"
        prefix = f"{self._pid}/" if self._pid else ""
        return visible(f"{level:<7} {prefix}{_tid(thread)}")


class JsonFormatter(LineFormatter):
    """One JSON object per line: ts, pid, tid, lvl, msg, ctx, as in Sidekiq's JSON log.

    A traceback is in `exc`.
    """

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
            entry["exc"] = _encodable(trace.rstrip("\n"))
        return visible_json(encode(entry).decode())


def _context(job: Job) -> dict[str, Any]:
    """Return the fields of a line about its job."""
    context: dict[str, Any] = {"class": job.display_class, "jid": job.jid, "queue": job.queue}
    for field in _OPTIONAL:
        if value := job.get(field):
            context[field] = value
    if CORRELATION_ID in job.fields:  # only jobs of GitLab have them
        context |= {name: job[name] for name in job.fields if name.startswith(META)}
    return context


def words(extra: Mapping[str, Any], *, with_queue: bool = True, with_identity: bool = True) -> str:
    """Return what a line for people tells about the current job: ` class=HardJob jid=...`

    Args:
        extra: Attributes of the event.
        with_queue: False to leave out the queue.
        with_identity: False to leave out class, id and queue, which the line shows elsewhere.
    """
    job = current_job()
    text = "" if job is None else _job_words(job, with_queue, with_identity)
    for name in _EXTRAS:
        value = extra.get(name)
        if value is not None:
            text += f" {name}={visible(str(value))}"
    return text


def visible_lines(text: str) -> str:
    """Return lines in which only the line ends are not printable, without the last line end."""
    return _visible_lines(text.rstrip("\n"))


def _visible_lines(text: str) -> str:
    if text.replace("\n", "").isprintable():
        return text
    return "\n".join(map(visible, text.split("\n")))


@lru_cache(maxsize=32)
def _indented(text: str) -> str:
    return "\n  " + _visible_lines(text).replace("\n", "\n  ")


@lru_cache(maxsize=1)  # most lines are about the same job as the line before
def _job_words(job: Job, with_queue: bool, with_identity: bool) -> str:
    text = f" class={job.display_class} jid={job.jid}" if with_identity else ""
    if with_queue and with_identity:
        text += f" queue={job.queue}"
    for field in _OPTIONAL:
        if value := job.get(field):
            text += f" {field}={_word(value)}"
    return visible(text)


def _timestamp(created: float) -> str:
    return _moment(int(created * 1000))


@lru_cache(maxsize=4)  # a busy worker writes many lines in a millisecond
def _moment(milliseconds: int) -> str:
    seconds, fraction = divmod(milliseconds, 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{fraction:03d}Z"


@lru_cache(maxsize=4)
def _second(second: int) -> str:
    return time.strftime("%H:%M:%S", time.localtime(second))


def _clock_time(created: float) -> str:
    return _second(int(created))


def _tid(thread: str) -> str:
    return thread.removeprefix("jobwire-")


def _word(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _encodable(text: str) -> str:
    """Return text that JSON can hold; the message of an error may have lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def _message(record: logging.LogRecord) -> str:
    match record.args:
        case (Told() as text,):
            return text.plain
    return record.getMessage()


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    stack: str = getattr(record, "stack", "")
    return stack or (formatter.formatException(record.exc_info) if record.exc_info else "")
