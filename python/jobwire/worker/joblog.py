"""The worker's log: one line an event, with the job it belongs to."""

from __future__ import annotations

import logging
import sys
import time
from typing import Any, Literal

from jobwire.current import current_job
from jobwire.payload import encode

__all__ = ["HumanFormatter", "JsonFormatter", "LogFormat", "set_up"]

LogFormat = Literal["human", "json"]
_EXTRAS = ("elapsed", "returned")
_CONTROL = {code: f"\\x{code:02x}" for code in (*range(32), 127)}
_CONTROL |= {ord(char): repr(char)[1:-1] for char in "\t\n\r"}


def set_up(log_format: LogFormat, level: str) -> None:
    """Send everything that is logged in this process to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else HumanFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


def _context(record: logging.LogRecord) -> dict[str, Any]:
    """Return what a line says besides its message: job, time it took, times put back before."""
    context: dict[str, Any] = {}
    job = current_job()
    if job is not None:
        context = {"class": job.display_class, "jid": job.jid, "queue": job.queue}
        for field in ("bid", "tags"):
            if job.get(field):
                context[field] = job[field]
    for name in _EXTRAS:
        value = getattr(record, name, None)
        if value is not None:
            context[name] = value
    return context


class HumanFormatter(logging.Formatter):
    """`2026-11-20T18:12:51.872Z INFO  default-3 done class=HardJob jid=... elapsed=0.012`"""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line; a traceback follows it."""
        words = [_timestamp(record), f"{record.levelname:<7}", _thread(record)]
        words.append(_visible(record.getMessage()))
        words += (f"{name}={_word(value)}" for name, value in _context(record).items())
        line = " ".join(words)
        return line + _trace(self, record)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: ts, pid, tid, lvl, msg, ctx, as Sidekiq's JSON log has them."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        entry: dict[str, Any] = {
            "ts": _timestamp(record),
            "pid": record.process,
            "tid": _thread(record),
            "lvl": record.levelname,
            "msg": _encodable(record.getMessage()),
        }
        if context := _context(record):
            entry["ctx"] = context
        if trace := _trace(self, record):
            entry["error"] = _encodable(trace.lstrip("\n"))
        return encode(entry).decode()


def _timestamp(record: logging.LogRecord) -> str:
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{moment}.{int(record.msecs):03d}Z"


def _thread(record: logging.LogRecord) -> str:
    return (record.threadName or "").removeprefix("jobwire-")


def _word(value: object) -> str:
    if isinstance(value, list):
        value = ",".join(map(str, value))
    return _visible(str(value))


def _visible(text: str) -> str:
    """Return text that stays on its line and does nothing to a terminal."""
    return text.translate(_CONTROL)


def _encodable(text: str) -> str:
    """Return text that JSON can hold: an error's message may have lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode()


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    if stack := getattr(record, "stack", None):
        return f"\n{stack}"
    return "\n" + formatter.formatException(record.exc_info) if record.exc_info else ""
