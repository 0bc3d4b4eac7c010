"""Calls of the standard library that tests hear about: new sockets, connections, processes.

An audit hook would hear them as well, but Python also calls it inside `sys.settrace`. A thread
that starts at this moment, while coverage is measured, then ends with an error (Python 3.11).
"""

from __future__ import annotations

import socket
import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

__all__ = ["hear", "open_now", "watch"]


def hear(owner: type, name: str, listener: Callable[..., object]) -> None:
    """Call `listener` with the arguments of each call of a method, before the method."""
    method = getattr(owner, name)

    @wraps(method)
    def heard(self: Any, *args: Any, **options: Any) -> Any:
        listener(self, *args, **options)
        return method(self, *args, **options)

    setattr(owner, name, heard)


_opened: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def watch() -> None:
    """Record every connection that this process opens from now on."""
    for name in ("connect", "connect_ex"):
        hear(socket.socket, name, lambda opened, *_: _opened.add(opened))


def open_now() -> set[socket.socket]:
    """Return the connections that are neither closed nor garbage-collected."""
    return {each for each in list(_opened) if each.fileno() != -1}
