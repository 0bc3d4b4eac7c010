"""Conversion of an exception to the strings that a payload stores. [RETRY-3] [RETRY-8]"""

from __future__ import annotations

from types import TracebackType

from jobwire.errors import JobFailed
from jobwire.protocol.retry import Failure

__all__ = ["describe"]


def describe(error: BaseException, *, backtrace: bool = True) -> Failure:
    """Return class, message and backtrace of an error, even if its `str()` raises.

    Args:
        error: The error.
        backtrace: False if the job does not store it, which saves the work of making it.
    """
    if isinstance(error, JobFailed):
        return Failure(error.error_class, error.message, error.backtrace)
    try:
        message = str.__str__(str(error))  # a subclass of str may do anything
    except BaseException:  # noqa: BLE001 - the application's __str__ may raise anything
        message = "!!! ERROR MESSAGE THREW AN ERROR !!!"
    kind = type(error)
    lines = _lines(error.__traceback__) if backtrace else []
    prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return Failure(f"{prefix}{kind.__qualname__}", message, lines)


def _lines(trace: TracebackType | None) -> list[str]:
    """Return the position of each call, innermost first, without reading the source files."""
    lines = []
    while trace is not None:
        code = trace.tb_frame.f_code
        lines.append(f"{code.co_filename}:{trace.tb_lineno}:in '{code.co_name}'")
        trace = trace.tb_next
    return lines[::-1]
