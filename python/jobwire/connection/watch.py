"""A connection that gets notices of changes: the server tracks the keys that it has read. [REL-1]

A read arms one notice for its keys, even for keys that do not exist yet. The next write to these
keys by any client makes the server send the notice. The connection can also wait for a value of a
list, and then takes no notices.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import hiredis

from jobwire.connection import connect as _connect
from jobwire.connection.cluster import Refused, is_away
from jobwire.connection.connection import connect
from jobwire.connection.opening import Opening
from jobwire.errors import RedisRefused
from jobwire.protocol.wire import Arg

__all__ = ["Watch"]

CHUNK = 65_536  # bytes to read at once
LOST = (Refused, OSError, hiredis.HiredisError)
_pack: Any = hiredis.pack_command
_INCOMPLETE = object()  # hiredis returns it while a message is incomplete
_NOTICE = object()


class Watch:
    """A connection that sends commands, and waits until the replies to its reads would change.

    Only one thread at a time may use it. It reads the socket itself, because a `Connection` hides
    notices.

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
        self._stop_check_interval = stop_check_interval
        self._url = url
        self._opening = Opening(url, timeout=_connect.TIMEOUT_S, role="wakeup", protocol=3)
        self._connection: Any = None
        self._reader: Any = None
        self._asked: set[bytes] = set()
        self._unread = 0  # replies to `tell` that are still to come

    def ask(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Return the replies to commands; `wait` ends when a key that they read changes.

        Raises:
            RedisRefused: The server refuses tracking, or one of the commands.
            RedisTrouble: The connection failed.
        """
        try:
            if self._connection is None:
                self._connect()
            self._asked = {str(word).encode() for words in commands for word in words}
            return self._exchange(commands)
        except LOST as error:
            raise _connect.unreachable(self._url, error) from None

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
                self._connection.socket.settimeout(min(self._stop_check_interval, left))
                try:
                    self._take(self._message(), self.noticed)
                except TimeoutError:
                    continue
        except LOST as error:
            raise _connect.no_reply(self._url, error) from None

    def tell(self, commands: Sequence[tuple[Arg, ...]]) -> None:
        """Send commands without waiting for their replies, which are ignored.

        Nothing is sent without a connection.

        Raises:
            RedisTrouble: The connection failed.
        """
        if self._connection is None:
            return
        try:
            self._send(commands)
        except LOST as error:
            raise _connect.no_reply(self._url, error) from None
        self._unread += len(commands)

    def pop(
        self, key: str, timeout: float, *, unless: Sequence[tuple[Arg, ...]] = ()
    ) -> bytes | list[Any] | None:
        """Return the next value of a list; None after `timeout` seconds, or at the stop.

        Args:
            key: The list.
            timeout: Seconds.
            unless: Commands that go before, in the same message. If one of them has a reply other
                than nil, the result is the list of their replies and the connection is closed.

        Raises:
            RedisRefused: The server refuses the command.
            RedisTrouble: The connection failed.
        """
        deadline = time.monotonic() + timeout + _connect.TIMEOUT_S
        try:
            if self._connection is None:
                self._connect()
            self._send([*unless, ("BRPOP", key, f"{timeout:.3f}")])
            replies = self._replies(len(unless), set(), set())
            if any(reply is not None for reply in replies):
                self.close()  # it waits for the list
                return replies
            while not self._stop.is_set():
                left = max(deadline - time.monotonic(), 0.001)
                self._connection.socket.settimeout(min(self._stop_check_interval, left))
                try:
                    message = self._reply(set())
                except TimeoutError:
                    if time.monotonic() < deadline:
                        continue
                    raise
                if message is not _NOTICE:
                    _check(message)
                    value: bytes | None = message and message[1]
                    return value
        except LOST as error:
            raise _connect.no_reply(self._url, error) from None
        self.close()  # the server may still answer
        return None

    def close(self) -> None:
        """Close the connection; the next command opens a new one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _connect(self) -> None:
        if self._stop.is_set():
            raise ConnectionAbortedError("stopping")  # a connection made now would stay open
        self._connection = connect(self._opening)
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        self._unread = 0
        try:
            self._exchange([("CLIENT", "TRACKING", "ON")])
        except RedisRefused:
            self.tracking = False
            raise

    def _exchange(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        self.missed, self.noticed = set(), set()
        self._send(commands)
        return self._replies(len(commands), self.missed, self.noticed)

    def _replies(self, count: int, missed: set[bytes], noticed: set[bytes]) -> list[Any]:
        """Return so many replies, and add the keys of notices: before the first one to `missed`."""
        replies: list[Any] = []
        while len(replies) < count:
            message = self._reply(noticed if replies else missed)
            if message is not _NOTICE:
                replies.append(message)
        for reply in replies:
            _check(reply)
        return replies

    def _send(self, commands: Sequence[tuple[Arg, ...]]) -> None:
        self._connection.socket.settimeout(_connect.TIMEOUT_S)
        self._connection.socket.sendall(b"".join(map(_pack, commands)))

    def _reply(self, keys: set[bytes]) -> Any:
        """Return the next reply, or `_NOTICE` after adding the keys of a notice to `keys`."""
        while True:
            message = self._message()
            if self._take(message, keys):
                return _NOTICE
            if not self._unread:
                return message
            self._unread -= 1

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

    def _take(self, message: Any, keys: set[bytes]) -> bool:
        """Return True if a message is a notice, after adding its keys to `keys`."""
        # No other reply has two elements of which the first is this string.
        if not (isinstance(message, list) and len(message) == 2 and message[0] == b"invalidate"):
            return False
        keys.update(self._asked if message[1] is None else message[1])  # None: all were flushed
        return True


def _check(reply: Any) -> None:
    """Raise an error reply; one of a slot that is at another node is as a lost connection."""
    if isinstance(reply, hiredis.ReplyError):
        if is_away(str(reply)):
            raise ConnectionResetError(str(reply))
        raise RedisRefused(str(reply))
