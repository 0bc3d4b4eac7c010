"""Conversion of an exception to the text that a payload stores or the log shows.

[RETRY-3] [RETRY-8]
"""

from __future__ import annotations

import concurrent.futures
import os
import traceback
from collections.abc import Sequence
from types import CodeType, TracebackType

from jobwire._version import DIRECTORY
from jobwire.errors import JobFailed, JobwireError
from jobwire.protocol.retry import Failure

__all__ = ["describe", "trace_of", "user_trace", "without_own_end"]

MAX_TRACE = 20_000  # characters of a traceback in the log
MAX_TRACES = 200  # kept in memory
# Frames in these files surround those of the application, and follow them if it calls jobwire.
_OURS = (
    DIRECTORY + os.sep,
    os.path.dirname(concurrent.futures.__file__) + os.sep,
)
_BARE = ("builtins", "__main__")  # modules that Python leaves out before the name of a class
# Errors to which Python adds lines or words of its own.
_SUGGESTING = (SyntaxError, NameError, AttributeError, ImportError, BaseExceptionGroup)
_traces: dict[tuple[int, ...], tuple[str, Sequence[CodeType]]] = {}


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


def trace_of(error: BaseException) -> str:
    """Return the traceback of an error for the log, from the first call of the application on.

    For an error that jobwire raised on purpose, as `enqueue` does, it ends with the application's
    last call, because the message says the rest.
    """
    if isinstance(error, JobFailed) and error.traceback:
        return error.traceback
    try:
        trace = user_trace(error)
        if isinstance(error, JobwireError):
            trace = without_own_end(trace)
        if _is_chained(error):
            text = "".join(traceback.format_exception(type(error), error, trace))
        else:
            text = _calls(trace) + _last_line(error)
    except BaseException as problem:  # noqa: BLE001 - it calls code of the error
        return f"(no traceback, because of {type(problem).__name__})"
    if len(text) > MAX_TRACE:
        left = len(text) - MAX_TRACE
        text = f"{text[: MAX_TRACE // 2]}\n[{left} characters]\n{text[-MAX_TRACE // 2 :]}"
    return text


def user_trace(error: BaseException) -> TracebackType | None:
    """Return the calls that led to an error, without those of jobwire before the application's.

    If there are only calls of jobwire: all of them, or none for an error that it raised on purpose.
    """
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(_OURS):
        trace = trace.tb_next
    if trace is None and not isinstance(error, JobwireError):
        return error.__traceback__
    return trace


def without_own_end(trace: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the calls of jobwire after the last one of the application."""
    calls: list[TracebackType] = []
    end = 0
    while trace is not None:
        calls.append(trace)
        if not trace.tb_frame.f_code.co_filename.startswith(_OURS):
            end = len(calls)
        trace = trace.tb_next
    shown = None
    for call in reversed(calls[:end]):  # copies, because the error keeps its traceback
        shown = TracebackType(shown, call.tb_frame, call.tb_lasti, call.tb_lineno)
    return shown


def _is_chained(error: BaseException) -> bool:
    """True if the traceback contains more than one exception."""
    return (
        error.__cause__ is not None
        or (error.__context__ is not None and not error.__suppress_context__)
        or isinstance(error, BaseExceptionGroup)
    )


def _last_line(error: BaseException) -> str:
    """Return class and message as Python prints them, with notes and suggestions if there are any.

    The usual case is made here, because Python takes four times as long for it.
    """
    kind = type(error)
    if isinstance(error, _SUGGESTING) or getattr(error, "__notes__", None):
        return "".join(traceback.format_exception_only(error))
    module = kind.__module__
    name = kind.__qualname__ if module in _BARE else f"{module}.{kind.__qualname__}"
    try:
        message = str.__str__(str(error))
    except BaseException:  # noqa: BLE001 - the application's __str__ may raise anything
        return "".join(traceback.format_exception_only(error))
    return f"{name}: {message}\n" if message else f"{name}\n"


def _calls(trace: TracebackType | None) -> str:
    """Return the part of a traceback above the error.

    It is the same for each failure at the same place, and dearer than all other work for a failed
    job, so it is made once for each place.
    """
    if trace is None:
        return ""
    place: list[int] = []
    call: TracebackType | None = trace
    while call is not None:
        # Not the code itself: the code of equal functions in different files is equal.
        place += (id(call.tb_frame.f_code), call.tb_lasti)
        call = call.tb_next
    key = tuple(place)
    kept = _traces.get(key)
    if kept is None:
        if len(_traces) >= MAX_TRACES:
            _traces.clear()
        codes = [frame.f_code for frame, _ in traceback.walk_tb(trace)]  # so that ids stay theirs
        text = "Traceback (most recent call last):\n" + "".join(traceback.format_tb(trace))
        kept = _traces[key] = text, codes
    return kept[0]
