"""An exception as a payload can hold it. [RETRY-3] [RETRY-8]"""

from __future__ import annotations

import traceback

from jobwire.errors import JobFailed
from jobwire.retry import Failure

__all__ = ["describe"]


def describe(error: BaseException) -> Failure:
    """Return class, message and backtrace of an error, whatever its `str()` does."""
    if isinstance(error, JobFailed):
        return Failure(error.error_class, error.message, error.backtrace)
    if isinstance(error, JobFailed):
        return Failure(error.error_class, error.message, error.backtrace)
    try:
        message = str(error)
    except BaseException:  # noqa: BLE001 - somebody else's __str__, even one that exits
        message = "!!! ERROR MESSAGE THREW AN ERROR !!!"
    kind = type(error)
    prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{frame.filename}:{frame.lineno}:in '{frame.name}'" for frame in reversed(frames)]
    return Failure(f"{prefix}{kind.__qualname__}", message, lines)
