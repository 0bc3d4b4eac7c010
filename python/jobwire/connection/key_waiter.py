"""Waits until keys have a wanted value, without polling: the server tells of each write.

Any number of threads and tasks wait over one connection. A read of a key arms one notice; the next
write of the key by any client makes the server send it, and the key is read again.
"""

from __future__ import annotations

import asyncio
import os
import select
import socket
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

import hiredis

from jobwire.connection import connect
from jobwire.connection.cluster import Refused, is_away
from jobwire.connection.connection import connect as open_connection
from jobwire.connection.opening import Opening
from jobwire.errors import RedisUnreachable
from jobwire.protocol.wire import Arg

__all__ = ["KeyWaiter"]

CLOSE_TIMEOUT_S = 1.0  # for which `close` waits for the thread
LINGER_S = 5.0  # for which an unused connection stays open; between two reads without a notice
POLL_INTERVAL_S = 0.25  # between reads of a server or proxy that cannot send notices
CHUNK = 65_536  # bytes to read at once
_LOST = (Refused, OSError, hiredis.HiredisError)
_INCOMPLETE = object()
_pack: Any = hiredis.pack_command

_Wanted = Callable[[Any], bool]
_Read = tuple[Arg, ...]


class _Waiter:
    __slots__ = ("future", "key", "read", "wanted")

    def __init__(self, key: bytes, wanted: _Wanted, read: _Read) -> None:
        self.key = key
        self.wanted = wanted
        self.read = read
        self.future: Future[Any] = Future()


class KeyWaiter:
    """Waits for values of keys. Thread-safe; its thread runs only while a caller waits.

    Args:
        url: URL of the server.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        self._forget_parent()

    def _forget_parent(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()  # guards all below
        self._waiters: dict[bytes, list[_Waiter]] = {}
        self._unread: list[bytes] = []  # keys that the thread has to read
        self._wake: socket.socket | None = None  # wakes the thread; None while there is none
        self._thread: threading.Thread | None = None
        self.closing = False

    def wait(
        self, key: str, wanted: _Wanted, timeout: float | None, read: _Read | None = None
    ) -> Any:
        """Return the value of a key as soon as it is wanted; None after `timeout` seconds.

        Args:
            key: The key.
            wanted: Looks at a value, which is not None.
            timeout: Seconds; None for no limit.
            read: The command that reads the value, one for each key; default: `GET key`.

        Raises:
            RedisTrouble: The connection failed.
        """
        waiter = self._add(key, wanted, read)
        try:
            return waiter.future.result(timeout)
        except TimeoutError:
            return None
        finally:
            self._remove(waiter)

    async def await_(
        self, key: str, wanted: _Wanted, timeout: float | None, read: _Read | None = None
    ) -> Any:
        """Return the value as soon as it is wanted; see `wait`."""
        waiter = self._add(key, wanted, read)
        try:
            return await asyncio.wait_for(asyncio.wrap_future(waiter.future), timeout)
        except TimeoutError:
            return None
        finally:
            self._remove(waiter)

    def close(self) -> None:
        """Close the connection; those that wait get an error. The next wait opens a new one."""
        if self._pid != os.getpid():
            return
        with self._lock:
            thread, wake = self._thread, self._wake
            if thread is None or wake is None:
                return
            self.closing = True
            with suppress(BlockingIOError):
                wake.send(b".")
        thread.join(CLOSE_TIMEOUT_S)

    def _add(self, key: str, wanted: _Wanted, read: _Read | None) -> _Waiter:
        if self._pid != os.getpid():  # a forked child has neither the thread nor its lock
            self._forget_parent()
        waiter = _Waiter(key.encode(), wanted, read or ("GET", key))
        with self._lock:
            self._waiters.setdefault(waiter.key, []).append(waiter)
            self._unread.append(waiter.key)
            if self._wake is None:
                self._wake, awake = socket.socketpair()
                self._wake.setblocking(False)
                target = _Listener(self._url, self, awake).run
                self._thread = threading.Thread(target=target, name="jobwire-notices", daemon=True)
                self._thread.start()
                self.closing = False
            with suppress(BlockingIOError):  # it has enough to wake up for
                self._wake.send(b".")
        return waiter

    def _remove(self, waiter: _Waiter) -> None:
        waiter.future.cancel()
        with self._lock:
            left = [one for one in self._waiters.get(waiter.key, ()) if one is not waiter]
            if left:
                self._waiters[waiter.key] = left
            else:
                self._waiters.pop(waiter.key, None)

    # -- for the thread

    def take_unread(self) -> list[bytes]:
        """Return the keys that were added since the last call."""
        with self._lock:
            keys, self._unread = self._unread, []
            return list(dict.fromkeys(keys))

    def keys(self) -> list[bytes]:
        """Return the keys that have waiters."""
        with self._lock:
            return list(self._waiters)

    def reads(self, keys: list[bytes]) -> dict[bytes, _Read]:
        """Return how to read those of the keys that have waiters."""
        with self._lock:
            return {key: self._waiters[key][0].read for key in keys if key in self._waiters}

    def give(self, key: bytes, value: Any) -> None:
        """Tell the value of a key."""
        with self._lock:
            waiters = list(self._waiters.get(key, ()))
        for waiter in waiters:
            with suppress(InvalidStateError):  # cancelled, or told before
                if value is not None and waiter.wanted(value):
                    waiter.future.set_result(value)

    def leave(self, error: Exception | None) -> bool:
        """End the thread, because of `error` or without waiters; return whether it has to end."""
        with self._lock:
            if error is None and self._waiters:
                return False
            waiters = [one for group in self._waiters.values() for one in group]
            self._waiters.clear()
            self._unread.clear()
            if self._wake is not None:
                self._wake.close()
                self._wake = None
        for waiter in waiters:
            with suppress(InvalidStateError):
                waiter.future.set_exception(error or RuntimeError("no error"))
        return True


class _Listener:
    """The thread of `KeyWaiter`, with its connection."""

    def __init__(self, url: str, waiter: KeyWaiter, awake: socket.socket) -> None:
        self._url = url
        self._waiter = waiter
        self._awake = awake
        self._reader: Any = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._tracks = True
        self._asked: list[bytes] = []  # keys whose replies are still to come, in order

    def run(self) -> None:
        close: Callable[[], None] = lambda: None  # noqa: E731
        try:
            try:
                opening = Opening(self._url, timeout=connect.TIMEOUT_S, role="notices", protocol=3)
                opened = open_connection(opening)
            except _LOST as error:
                self._waiter.leave(connect.unreachable(self._url, error))
                return
            self._socket, close = opened.socket, opened.close
            try:
                self._listen()
            except _LOST as error:
                self._waiter.leave(connect.no_reply(self._url, error))
        except BaseException as error:  # all waiters have to learn of it
            self._waiter.leave(error if isinstance(error, Exception) else RuntimeError(str(error)))
            raise
        finally:
            close()
            self._awake.close()

    def _listen(self) -> None:
        self._send(("CLIENT", "TRACKING", "ON"))
        self._tracks = not isinstance(self._message(), hiredis.ReplyError)
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        poll.register(self._awake, select.POLLIN)
        while True:
            self._read(self._waiter.take_unread())
            self._receive_all()
            idle = not self._waiter.keys()
            pause = LINGER_S if idle or self._tracks else POLL_INTERVAL_S
            ready = {number for number, _ in poll.poll(pause * 1000)}
            if self._awake.fileno() in ready:
                self._awake.recv(CHUNK)
                if self._waiter.closing:
                    self._waiter.leave(RedisUnreachable("the client was closed"))
                    return
            if self._socket.fileno() in ready:
                self._feed()
            if not ready and idle and self._waiter.leave(None):
                return
            if not ready:  # a slot that goes to another node takes its notices with it
                self._read(self._waiter.keys())

    def _read(self, keys: list[bytes]) -> None:
        if reads := self._waiter.reads(keys):
            self._asked += reads
            self._send(*reads.values())

    def _receive_all(self) -> None:
        """Handle the messages that have come."""
        while True:
            message = self._reader.gets()
            if message is _INCOMPLETE:
                pending = getattr(self._socket, "pending", None)  # TLS may hold some back
                if pending is None or not pending():
                    return
                self._feed()
            elif isinstance(message, list) and message and isinstance(message[0], bytes):
                if message[0] == b"invalidate":  # None in place of keys: all were flushed
                    self._read(message[1] or self._waiter.keys())
            elif isinstance(message, hiredis.ReplyError) and is_away(str(message)):
                raise ConnectionResetError(str(message))
            else:  # a stream is read as a list of lists
                failed = isinstance(message, hiredis.ReplyError)
                self._waiter.give(self._asked.pop(0), None if failed else message)

    def _message(self) -> Any:
        while (message := self._reader.gets()) is _INCOMPLETE:
            self._feed()
        return message

    def _feed(self) -> None:
        chunk = self._socket.recv(CHUNK)
        if not chunk:
            raise ConnectionResetError("connection closed by the server")
        self._reader.feed(chunk)

    def _send(self, *commands: tuple[Arg, ...] | tuple[str | bytes, ...]) -> None:
        self._socket.sendall(b"".join(map(_pack, commands)))
