"""The connection pool of the blocking shell."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress

from jobwire.connection.connection import Connection

__all__ = ["ConnectionPool", "PoolExhausted"]


class PoolExhausted(Exception):
    """All connections were in use for the whole timeout."""


class ConnectionPool:
    """Gives connections to threads, the last used one first, so that few are open.

    `acquire` and `release` of an idle connection take no lock: `pop` and `append` of a list are
    atomic, and a thread checks again after it has announced that it waits.

    Args:
        make: Opens a new connection.
        limit: The largest number of connections.
        timeout: Seconds to wait for a connection while other threads use all of them.
    """

    def __init__(self, make: Callable[[], Connection], limit: int, timeout: float) -> None:
        self._make = make
        self._limit = limit
        self._timeout = timeout
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._epoch = object()  # connections of an earlier epoch are not used again
        self._idle: list[Connection] = []
        self._count = 0  # idle, in use, and being opened
        self._spare = 0  # idle connections that no thread has needed since the last `trim`
        self._waiting = 0
        self._change = threading.Condition()

    def acquire(self) -> Connection:
        """Return a connection for one exchange; give it to `release` or `discard` afterwards.

        Raises:
            PoolExhausted: All connections were in use for the whole timeout.
            Exception: The error of opening a new one.
        """
        if self._pid != os.getpid():
            self._begin()  # a forked child must not use the connections of its parent
        idle = self._idle
        while idle:
            try:
                connection = idle.pop()
            except IndexError:
                break
            if len(idle) < self._spare:
                self._spare = len(idle)
            if connection.quiet():
                return connection
            self.discard(connection)
        return self._open_or_wait()

    def release(self, connection: Connection) -> None:
        """Take back a connection that can be used again."""
        idle = self._idle
        if connection.epoch is not self._epoch:
            self.discard(connection)
            return
        idle.append(connection)
        if idle is not self._idle:
            self._drain(idle)
        elif self._waiting:
            with self._change:
                self._change.notify()

    def discard(self, connection: Connection) -> None:
        """Close a connection that cannot, or must not, be used again. [ENV-5]"""
        connection.close()
        self._free()

    def renew(self) -> None:
        """Close idle connections now, and those in use when they are released."""
        self._epoch = object()
        old, self._idle = self._idle, []
        self._drain(old)

    def trim(self) -> None:
        """Close the idle connections that were not needed since the last call."""
        idle = self._idle
        with suppress(IndexError):
            for _ in range(self._spare):
                self.discard(idle.pop(0))
        self._spare = len(idle)

    def _open_or_wait(self) -> Connection:
        released: list[Connection] = []

        def may_go_on() -> bool:
            if self._count < self._limit:
                self._count += 1
                return True
            with suppress(IndexError):
                released.append(self._idle.pop())
            return bool(released)

        with self._change:
            self._waiting += 1
            try:
                if not self._change.wait_for(may_go_on, self._timeout):
                    raise PoolExhausted(
                        f"all {self._limit} connections were in use for {self._timeout:g} s"
                    )
            finally:
                self._waiting -= 1
        if released:
            return released[0]
        epoch = self._epoch
        try:
            connection = self._make()
        except BaseException:
            self._free()
            raise
        connection.epoch = epoch
        return connection

    def _free(self) -> None:
        with self._change:
            self._count -= 1
            self._change.notify()

    def _drain(self, connections: list[Connection]) -> None:
        while connections:
            try:
                connection = connections.pop()
            except IndexError:
                return
            self.discard(connection)
