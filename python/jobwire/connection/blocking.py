"""A check of blocking calls: in a coroutine they stop the event loop, and have asyncio twins."""

from __future__ import annotations

import sys
import warnings
from asyncio import _get_running_loop  # unlike the public one, it returns None without a loop
from opcode import opmap
from types import FrameType

__all__ = ["check_loop"]

# Their frames are between the call and the user's line: a task of Django calls its backend.
_OURS = ("jobwire", "django", "django_tasks")
_TWIN = "use `await ...a{method}()`"
_TWINS = {
    "JobType": _TWIN,
    "JobwireBackend": _TWIN,  # of Django's tasks
    "Client": "use AsyncClient or `app.aclient`",
    "Inspector": "use AsyncInspector",
    "PeriodicJobs": "use AsyncPeriodicJobs",
}
_QUIET = ("__exit__", "close", "write")  # called where a loop ends or by a framework


def check_loop() -> None:
    """Warn about a blocking call in a running event loop, once for each line that makes one.

    Raises:
        TypeError: The call is awaited. It raises before anything is sent, because the `await` of
            the result would fail after that, and a second call would push the job a second time.
    """
    if _get_running_loop() is None:
        return
    frame: FrameType | None = sys._getframe(1)
    level, kind, method = 2, "", ""
    while frame and (module := _module(frame)) in _OURS:
        if module == "jobwire":
            kind, _, method = frame.f_code.co_qualname.rpartition(".")
        frame, level = frame.f_back, level + 1
    if frame is None or kind not in _TWINS or method in _QUIET:
        return
    twin = _TWINS[kind].format(method=method)
    if _awaits(frame):
        raise TypeError(f"{method}() cannot be awaited, and did nothing; {twin}")
    warnings.warn(
        f"{method}() in a coroutine blocks its event loop; {twin}",
        RuntimeWarning,
        stacklevel=level,
    )


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def _awaits(caller: FrameType) -> bool:
    """True if the caller awaits what the call returns: its next instruction says so."""
    following = caller.f_code.co_code[caller.f_lasti + 2 :: 2]
    return next(filter(None, following), 0) == opmap["GET_AWAITABLE"]  # 0 are inline caches
