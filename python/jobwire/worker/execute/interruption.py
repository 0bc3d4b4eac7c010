"""Interruption of a job by an error that another thread has raised in the job's thread.

The error comes at a harmless place only; see `safe_points`. Where the thread is elsewhere, in a
library or in our own code, the error comes as soon as it is back.
"""

from __future__ import annotations

import ctypes
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

from jobwire.worker.execute.safe_points import is_application, is_harmless, landing, stands_well

__all__ = ["Interruption", "Overdue", "blocked", "make_interruption", "wake"]

_wakers: dict[int, Callable[[], object]] = {}


class Overdue(BaseException):
    """Raised in a job that went on after a `JobTimeout`, which `except Exception` catches."""


@contextmanager
def blocked(waker: Callable[[], object]) -> Iterator[None]:
    """Let `waker` interrupt this thread while it waits outside Python code, inside the block."""
    ident = threading.get_ident()
    outer = _wakers.get(ident)
    _wakers[ident] = waker
    try:
        yield
    finally:
        if outer is None:
            del _wakers[ident]
        else:
            _wakers[ident] = outer


def wake(ident: int) -> bool:
    """Interrupt a thread that waits with a waker; return False if it does not wait so."""
    waker = _wakers.get(ident)
    if waker is not None:
        waker()
    return waker is not None


class Interruption(ABC):
    """Raises errors in the jobs of one thread.

    Args:
        ident: The thread.
        base: The code in that thread that calls the job.

    Attributes:
        raised: True if the error that was asked for last has been raised.
    """

    def __init__(self, ident: int, base: CodeType) -> None:
        self.raised = True
        self._ident = ident
        self._base = base
        self._error: type[BaseException] | None = None

    def ask(self, error: type[BaseException]) -> None:
        """Have an error raised soon; call `attempt` until it is. From any thread."""
        self.raised = False
        self._error = error
        self.attempt()

    def attempt(self) -> None:
        """Do what can be done now, so that the error is raised."""
        if self._error is None:
            return
        if wake(self._ident):
            self._taken()
            return
        place = landing(sys._current_frames().get(self._ident), self._base)
        if place is not None:
            self._aim(*place)

    def end(self) -> None:
        """Raise nothing more: the job has ended. From its thread."""
        self._error = None

    def rest(self) -> None:  # noqa: B027 - most need not
        """Give up what `attempt` needed, because the error was raised. From any thread."""

    @abstractmethod
    def _aim(self, frame: FrameType, inner: FrameType | None) -> None:
        """Have the error raised in `frame`, which is reached when `inner` has ended."""

    def _taken(self) -> type[BaseException] | None:
        error, self._error = self._error, None
        self.raised = True
        return error


def make_interruption(ident: int, base: CodeType) -> Interruption:
    """Return the interruption for the jobs of a thread."""
    return _Implementation(ident, base)


if sys.version_info >= (3, 12):
    _mon = sys.monitoring
    _INSTRUCTION = _mon.events.INSTRUCTION
    _lock = threading.Lock()  # Guards the next three, but for reading `_waiting`.
    _waiting: dict[int, _Monitored] = {}  # by thread
    _codes: dict[int, CodeType] = {}  # by `id`, those of which each instruction is told
    _tool: int | None = None

    class _Monitored(Interruption):
        """Has the interpreter call us at each instruction of the code in question."""

        def end(self) -> None:
            super().end()
            self.rest()

        def _aim(self, frame: FrameType, inner: FrameType | None) -> None:
            codes: dict[int, CodeType] = {}
            outer: FrameType | None = frame
            while outer is not None and outer.f_code is not self._base:
                if is_application(outer.f_code):
                    codes[id(outer.f_code)] = outer.f_code
                outer = outer.f_back
            global _tool
            with _lock:
                if _tool is None:
                    _tool = _acquire_tool()
                _waiting[self._ident] = self
                for key in codes.keys() - _codes.keys():
                    _mon.set_local_events(_tool, codes[key], _INSTRUCTION)
                _codes.update(codes)

        def rest(self) -> None:
            with _lock:
                if _waiting.pop(self._ident, None) is not None and not _waiting and _tool:
                    for code in _codes.values():
                        _mon.set_local_events(_tool, code, 0)
                    _codes.clear()

        def arrived(self, frame: FrameType) -> None:
            """Raise the error in the current thread, which is in `frame`."""
            if self._error is not None and is_harmless(frame, self._base):
                error = self._taken()
                assert error is not None
                raise error

    def _acquire_tool() -> int:
        tool = next(number for number in (3, 4, 2, 5, 1, 0) if _mon.get_tool(number) is None)
        _mon.use_tool_id(tool, "jobwire")
        _mon.register_callback(tool, _INSTRUCTION, _on_place)
        return tool

    def _on_place(*_: object) -> None:
        interruption = _waiting.get(threading.get_ident())
        if interruption is not None:
            interruption.arrived(sys._getframe(1))

    _Implementation: type[Interruption] = _Monitored

else:
    _raise_async = ctypes.pythonapi.PyThreadState_SetAsyncExc
    _raise_async.argtypes = ctypes.c_ulong, ctypes.py_object

    class _Traced(Interruption):
        """Raises an asynchronous error in a thread that stands at a harmless place.

        A thread that is elsewhere gets a trace function when a call has ended, by a finalizer.
        """

        def __init__(self, ident: int, base: CodeType) -> None:
            super().__init__(ident, base)
            self._is_traced = False
            self._tracer: Any = None  # of a debugger, for example

        def end(self) -> None:
            super().end()
            if self._is_traced:
                self._is_traced = False
                sys.settrace(self._tracer)

        def _aim(self, frame: FrameType, inner: FrameType | None) -> None:
            if self._is_traced:
                return
            if inner is None and stands_well(frame) and self._raise_at(frame, frame.f_lasti):
                return
            inner = frame if inner is None else inner
            if inner.f_trace is None:
                inner.f_trace = _End(self)

        def _raise_at(self, frame: FrameType, lasti: int) -> bool:
            """Raise the error if the thread is still there; return False if it is not.

            No other thread can run between the look and the call: these loops are the two places
            in which Python code calls something without giving the interpreter a chance to switch.
            """
            ident, error = self._ident, self._error
            raising = map(_raise_async, (ident,), (error,))
            for frames in iter(sys._current_frames, None):
                if ident in frames and frames[ident] is frame and frame.f_lasti == lasti:
                    for _ in raising:
                        self._taken()
                        return True
                return False
            return False

        def start_tracing(self) -> None:
            """Trace the thread until the error is raised, if this is the thread."""
            if self._error is None or self._is_traced or threading.get_ident() != self._ident:
                return
            frame: FrameType | None = sys._getframe(1)
            while frame is not None and frame.f_code is not self._base:
                if is_application(frame.f_code):
                    frame.f_trace = self._on_line
                frame = frame.f_back
            self._tracer = sys.gettrace()
            self._is_traced = True
            sys.settrace(self._on_call)

        def _on_call(self, frame: FrameType, event: str, argument: object) -> Any:
            is_wanted = self._error is not None and is_application(frame.f_code)
            return self._on_line if is_wanted else None

        def _on_line(self, frame: FrameType, event: str, argument: object) -> Any:
            if self._error is None:
                return None
            if event == "line" and is_harmless(frame, self._base):
                error = self._taken()
                assert error is not None
                raise error
            return self._on_line

    class _End:
        """Is freed when the frame that has it as its trace function ends, in that thread."""

        def __init__(self, interruption: _Traced) -> None:
            self._interruption = interruption

        def __call__(self, frame: FrameType, event: str, argument: object) -> None:
            return None  # for a debugger that begins to trace the thread

        def __del__(self) -> None:
            self._interruption.start_tracing()

    _Implementation: type[Interruption] = _Traced
