"""A connection that gets notices of changes: the server tracks the keys that it has read. [REL-1]

A read arms one notice for its keys, even for keys that do not exist yet. The next write to these
keys by any client makes the server send the notice. The connection can also wait for a value of a
list, and then takes no notices.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import hiredis

from jobwire.connection import connect as _connect
from jobwire.connection.cluster import Refused, is_away
from jobwire.connection.connection import connect
from jobwire.connection.opening import Opening
from jobwire.errors import RedisRefused
from jobwire.protocol.wire import Arg

__all__ = ["Watch", "WatchGuest"]

CHUNK = 65_536  # bytes to read at once
LOST = (Refused, OSError, hiredis.HiredisError)
_pack: Any = hiredis.pack_command
_INCOMPLETE = object()  # hiredis returns it while a message is incomplete


class Watch:
    """A connection that sends commands, and waits until the replies to its reads would change.

    Only one thread at a time may use it. It reads the socket itself, because a `Connection` hides
    notices. Another thread may be its guest, over the same connection.

    Args:
        url: URL of the server.
        stop: Ends every wait.
        stop_check_interval: Seconds between two checks of `stop`.

    Attributes:
        tracking: False after the server has refused to track keys.
        missed: Keys of notices that came before the first reply of the last `ask`.
        noticed: Keys of notices that came after that reply.
    """

    def __init__(self, url: str, stop: threading.Event, *, stop_check_interval: float) -> None:
        self.tracking = True
        self.missed: set[bytes] = set()
        self.noticed: set[bytes] = set()
        self._stop = stop
        self.stop_check_interval = stop_check_interval
        self.url = url
        self._opening = Opening(url, timeout=_connect.TIMEOUT_S, role="wakeup", protocol=3)
        self._connection: Any = None
        self._reader: Any = None
        self._asked: set[bytes] = set()
        self._owed: deque[list[Any]] = deque()  # where the replies go that are still to come
        # Guards `_owed` together with the socket's output, and all that a guest waits for.
        self.changed = threading.Condition()
        self.tracked: Any = None  # the connection, once notices are sent over it
        self.guest: WatchGuest | None = None

    def ask(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Return the replies to commands; `wait` ends when a key that they read changes.

        Raises:
            RedisRefused: The server refuses tracking, or one of the commands.
            RedisTrouble: The connection failed.
        """
        try:
            if self._connection is None:
                self._connect()
            self._asked = _words(commands)
            return self._exchange(commands)
        except LOST as error:
            raise _connect.unreachable(self.url, error) from None

    def wait(self, timeout: float) -> None:
        """Wait until `noticed` has a key, for at most `timeout` seconds.

        Raises:
            RedisTrouble: The connection failed.
        """
        deadline = time.monotonic() + timeout
        try:
            while not self.noticed and not self._stop.is_set():
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._connection.socket.settimeout(min(self.stop_check_interval, left))
                with suppress(TimeoutError):
                    self._receive(self.noticed)
        except LOST as error:
            raise _connect.no_reply(self.url, error) from None

    def wake(self) -> None:
        """Have the wait of another thread end soon, as if a notice had come."""
        self.noticed.add(b"")

    def tell(self, commands: Sequence[tuple[Arg, ...]]) -> None:
        """Send commands without waiting for their replies, which are ignored.

        Nothing is sent without a connection.

        Raises:
            RedisTrouble: The connection failed.
        """
        if self._connection is None:
            return
        try:
            self._send(commands, [])
        except LOST as error:
            raise _connect.no_reply(self.url, error) from None

    def pop(
        self, key: str, timeout: float, *, unless: Sequence[tuple[Arg, ...]] = ()
    ) -> bytes | list[Any] | None:
        """Return the next value of a list; None after `timeout` seconds, or at the stop.

        Args:
            key: The list.
            timeout: Seconds.
            unless: Commands that go before, in the same message. If one of them has a reply other
                than nil or 0, the result is the list of their replies and the connection is closed.

        Raises:
            RedisRefused: The server refuses the command.
            RedisTrouble: The connection failed.
        """
        deadline = time.monotonic() + timeout + _connect.TIMEOUT_S
        try:
            if self._connection is None:
                self._connect()
            replies: list[Any] = []
            self._send([*unless, ("BRPOP", key, f"{timeout:.3f}")], replies)
            while len(replies) < len(unless):
                self._receive(set())
            _check(replies)
            if any(replies[: len(unless)]):
                self.close()  # it waits for the list
                return replies[: len(unless)]
            while not self._stop.is_set():
                if len(replies) > len(unless):
                    _check(replies)
                    value: bytes | None = replies[-1] and replies[-1][1]
                    return value
                left = max(deadline - time.monotonic(), 0.001)
                self._connection.socket.settimeout(min(self.stop_check_interval, left))
                try:
                    self._receive(set())
                except TimeoutError:
                    if time.monotonic() >= deadline:
                        raise
        except LOST as error:
            raise _connect.no_reply(self.url, error) from None
        self.close()  # the server may still answer
        return None

    def close(self) -> None:
        """Close the connection; the next command opens a new one."""
        if self._connection is not None:
            self._connection.close()
            with self.changed:
                self._connection = self.tracked = None
                self._owed.clear()
                self.changed.notify_all()

    def _connect(self) -> None:
        if self._stop.is_set():
            raise ConnectionAbortedError("stopping")  # a connection made now would stay open
        self._connection = connect(self._opening)
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        try:
            self._exchange([("CLIENT", "TRACKING", "ON")])
        except RedisRefused:
            self.tracking = False
            raise
        with self.changed:
            self.tracked = self._connection
            self.changed.notify_all()

    def _exchange(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        self.missed, self.noticed = set(), set()
        replies: list[Any] = []
        self._send(commands, replies)
        while len(replies) < len(commands):
            self._receive(self.noticed if replies else self.missed)
        _check(replies)
        return replies

    def send(self, commands: Sequence[tuple[Arg, ...]], replies: list[Any]) -> None:
        """Send commands, whose replies will be added to a list by the thread that reads."""
        with self.changed:
            self._connection.socket.sendall(b"".join(map(_pack, commands)))
            self._owed.extend([replies] * len(commands))

    def _send(self, commands: Sequence[tuple[Arg, ...]], replies: list[Any]) -> None:
        self._connection.socket.settimeout(_connect.TIMEOUT_S)
        self.send(commands, replies)

    def _receive(self, keys: set[bytes]) -> None:
        """Handle the next message: add a reply to its list, or the keys of a notice to `keys`."""
        message = self._message()
        with self.changed:
            # No other reply has two elements of which the first is this string.
            if isinstance(message, list) and len(message) == 2 and message[0] == b"invalidate":
                guest = self.guest
                changed = None if message[1] is None else set(message[1])  # None: all were flushed
                keys.update(self._asked if changed is None else changed - _asked_by(guest))
                if guest is not None:
                    guest.take(changed)
            elif self._owed:
                self._owed.popleft().append(message)
            self.changed.notify_all()

    def _message(self) -> Any:
        """Return the next message of the server.

        Raises:
            OSError: The connection is closed, or no message came in time (TimeoutError).
        """
        while (message := self._reader.gets()) is _INCOMPLETE:
            chunk = self._connection.socket.recv(CHUNK)
            if not chunk:
                raise ConnectionResetError("connection closed by the server")
            self._reader.feed(chunk)
        return message


class WatchGuest:
    """Gets notices of its own over the connection of a `Watch`, while the thread of that one reads.

    Without that connection, or if it breaks, a call raises; the guest tries again later. One thread
    at a time may use it.

    Args:
        host: Owner of the connection, whose thread waits for notices nearly all of the time.
        stop: Ends every wait.

    Attributes:
        tracking: As the user of the guest sets it.
        noticed: Keys of notices that came after the first reply of the last `ask`.
    """

    def __init__(self, host: Watch, stop: threading.Event) -> None:
        self.tracking = True
        self.noticed: set[bytes] = set()
        self.asked: set[bytes] = set()
        self._host = host
        self._stop = stop
        self._connection: Any = None  # of the last `ask`
        self._replies: list[Any] = []  # to the last `ask`
        host.guest = self

    def ask(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Return the replies to commands; see `Watch.ask`."""
        host = self._host
        replies: list[Any] = []
        try:
            with host.changed:
                if host.tracked is None and host.tracking:  # it is just being made
                    host.changed.wait(host.stop_check_interval)
                if not host.tracking:
                    raise RedisRefused("the server refuses to send notices")
                connection = self._connection = host.tracked
                if connection is None:
                    raise ConnectionResetError("no connection yet")
                self.noticed, self._replies = set(), replies
                self.asked = _words(commands)
                host.send(commands, replies)
                host.changed.wait_for(
                    lambda: len(replies) == len(commands) or host.tracked is not connection,
                    _connect.TIMEOUT_S,
                )
            if len(replies) < len(commands):
                raise TimeoutError("timed out")
            _check(replies)
        except LOST as error:
            self._shut()
            raise _connect.no_reply(host.url, error) from None
        return replies

    def wait(self, timeout: float) -> None:
        """Wait until `noticed` has a key, for at most `timeout` seconds; see `Watch.wait`."""
        host, deadline = self._host, time.monotonic() + timeout
        with host.changed:
            while not self.noticed and not self._stop.is_set():
                if host.tracked is not self._connection:
                    raise _connect.no_reply(host.url, ConnectionResetError("connection closed"))
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                host.changed.wait(min(host.stop_check_interval, left))

    def wake(self) -> None:
        """See `Watch.wake`."""
        with self._host.changed:
            self.noticed.add(b"")
            self._host.changed.notify_all()

    def close(self) -> None:
        """Get no more notices; the connection stays."""
        with self._host.changed:
            self.asked = set()

    def take(self, changed: set[bytes] | None) -> None:
        """Note the keys of a notice; those of one before the first reply are old."""
        if self._replies:
            self.noticed |= self.asked if changed is None else self.asked & changed

    def _shut(self) -> None:
        """Have the thread of the host notice that its connection has failed."""
        if self._connection is not None:
            with suppress(OSError):
                # Not the method of a TLS socket, which the other thread is about to read.
                socket.socket.shutdown(self._connection.socket, socket.SHUT_RDWR)


def _words(commands: Sequence[tuple[Arg, ...]]) -> set[bytes]:
    return {str(word).encode() for words in commands for word in words}


def _asked_by(guest: WatchGuest | None) -> set[bytes]:
    return set() if guest is None else guest.asked


def _check(replies: Sequence[Any]) -> None:
    """Raise an error reply; one of a slot that is at another node is as a lost connection."""
    for reply in replies:
        if isinstance(reply, hiredis.ReplyError):
            if is_away(str(reply)):
                raise ConnectionResetError(str(reply))
            raise RedisRefused(str(reply))
