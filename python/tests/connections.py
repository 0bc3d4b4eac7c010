"""Connections that a test opened and did not close, found before the garbage collector runs."""

from __future__ import annotations

import socket
import weakref

from tests.calls import hear

_opened: weakref.WeakSet[socket.socket] = weakref.WeakSet()


def watch() -> None:
    """Record every connection that this process opens from now on."""
    for name in ("connect", "connect_ex"):
        hear(socket.socket, name, lambda opened, *_: _opened.add(opened))


def open_now() -> set[socket.socket]:
    """Return the connections that are neither closed nor garbage-collected."""
    return {each for each in list(_opened) if each.fileno() != -1}
