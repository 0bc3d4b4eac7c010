"""An exception as a payload can hold it. [RETRY-3] [RETRY-8] [RETRY-10]"""

from __future__ import annotations

import traceback

from jobwire.errors import Shutdown
from jobwire.retry import Failure

__all__ = ["caused_by_shutdown", "describe"]


def describe(error: BaseException) -> Failure:
    """Return class, message and backtrace of an error, whatever its `str()` does."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - somebody else's __str__
        message = "!!! ERROR MESSAGE THREW AN ERROR !!!"
    kind = type(error)
    prefix = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f"{frame.filename}:{frame.lineno}:in '{frame.name}'" for frame in reversed(frames)]
    return Failure(f"{prefix}{kind.__qualname__}", message, lines)


def caused_by_shutdown(error: BaseException) -> bool:
    """Whether an error only says that the job was interrupted. [RETRY-10]"""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        if isinstance(current, Shutdown):
            return True
        seen.add(id(current))
        current = current.__cause__ or current.__context__
    return False
