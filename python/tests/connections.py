"""Connections that a test opened and did not close, found before the garbage collector runs."""

from __future__ import annotations

import socket
import sys
import weakref
from typing import Any

_opened: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "socket.connect" and isinstance(arguments[0], socket.socket):
        _opened.add(arguments[0])


def watch() -> None:
    """Record every connection that this process opens from now on."""
    sys.addaudithook(_hear)


def open_now() -> set[socket.socket]:
    """Return the connections that are neither closed nor garbage-collected."""
    return {each for each in list(_opened) if each.fileno() != -1}
