"""Interruption of a thread by an exception that another thread raises in it."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["blocked", "cancel_raise", "raise_in_thread", "wake"]

_wakers: dict[int, Callable[[], object]] = {}


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


def raise_in_thread(ident: int, error: type[BaseException]) -> None:
    """Raise `error` in a thread, or call its waker if it waits.

    The error comes between two bytecodes, so it does not reach code that blocks in C without a
    waker.
    """
    waker = _wakers.get(ident)
    if waker is None:
        _set(ident, ctypes.py_object(error))
    else:
        waker()


def wake(ident: int) -> bool:
    """Interrupt a thread that waits with a waker; return False if it does not wait so."""
    waker = _wakers.get(ident)
    if waker is not None:
        waker()
    return waker is not None


def cancel_raise(ident: int) -> None:
    """Cancel a `raise_in_thread` whose error has not reached the thread yet."""
    _set(ident, None)


def _set(ident: int, error: ctypes.py_object[type[BaseException]] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), error)
