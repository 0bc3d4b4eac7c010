"""Raising an exception in another thread, wherever it is."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

__all__ = ["blocked", "cancel_raise", "raise_in_thread"]

_ways: dict[int, Callable[[], object]] = {}


@contextmanager
def blocked(waker: Callable[[], object]) -> Iterator[None]:
    """Say how to interrupt this thread while it waits for something outside of Python code."""
    ident = threading.get_ident()
    outer = _ways.get(ident)
    _ways[ident] = waker
    try:
        yield
    finally:
        if outer is None:
            del _ways[ident]
        else:
            _ways[ident] = outer


def raise_in_thread(ident: int, error: type[BaseException]) -> None:
    """Raise `error` in a thread, or use its way out if it waits.

    Delivered between two bytecodes: code that blocks in C without a way out is not reached.
    """
    waker = _ways.get(ident)
    if waker is None:
        _set(ident, ctypes.py_object(error))
    else:
        waker()


def cancel_raise(ident: int) -> None:
    """Undo a `raise_in_thread` that was not delivered yet."""
    _set(ident, None)


def _set(ident: int, error: ctypes.py_object[type[BaseException]] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), error)
