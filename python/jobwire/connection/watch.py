"""A connection that learns of changes: the server tracks what it was asked. [REL-1]

Each reply arms a one-shot notice, also for keys that do not exist yet, and the next write to them
by any client sends it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import hiredis
import redis

from jobwire.connection import connect as _connect
from jobwire.errors import RedisRefused
from jobwire.protocol.wire import Arg

__all__ = ["Watch"]

CHUNK = 65_536  # bytes to read at once
LOST = (redis.RedisError, OSError, hiredis.HiredisError)
_pack: Any = hiredis.pack_command
_MORE = object()  # what hiredis returns when a message is not all there


class Watch:
    """One connection that asks, and then waits until the answers change.

    Used by one thread at a time. It reads for itself, because redis-py does not tell what it
    makes of a notice that it finds in front of a reply.

    Args:
        url: Where the server is.
        stop: Ends every wait.
        stop_check_interval: Seconds between two looks at `stop`.

    Attributes:
        tracking: False once the server has refused to track.
        missed: Keys of notices that came before the answers of the last `ask`.
        noticed: Keys of notices that came after the first of these answers.
    """

    def __init__(self, url: str, stop: threading.Event, *, stop_check_interval: float) -> None:
        self.tracking = True
        self.missed: set[bytes] = set()
        self.noticed: set[bytes] = set()
        self._stop = stop
        self._stop_check_interval = stop_check_interval
        self._url = url
        self._open = _connect.opener(url, timeout=_connect.TIMEOUT, protocol=3)
        self._connection: Any = None
        self._reader: Any = None
        self._asked: set[bytes] = set()

    def ask(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Return the replies to reading commands; `wait` ends when one of them has changed.

        Raises:
            RedisRefused: The server refuses to track, or one of the commands.
            RedisTrouble: There is no connection.
        """
        try:
            if self._connection is None:
                self._connect()
            self._asked = {str(word).encode() for words in commands for word in words}
            return self._exchange(commands)
        except LOST as error:
            raise _connect.unreachable(self._url, error) from error

    def wait(self, timeout: float) -> None:
        """Wait until there is something in `noticed`.

        Raises:
            RedisTrouble: The connection is gone.
        """
        deadline = time.monotonic() + timeout
        try:
            while not self.noticed and not self._stop.is_set():
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self._connection._sock.settimeout(min(self._stop_check_interval, left))
                try:
                    self._take(self._message(), self.noticed)
                except TimeoutError:
                    continue
        except LOST as error:
            raise _connect.no_reply(self._url, error) from error

    def close(self) -> None:
        """Close the connection; the next question opens a new one."""
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None

    def _connect(self) -> None:
        if self._stop.is_set():
            raise ConnectionAbortedError("stopping")  # a connection made now would stay open
        self._connection = self._open()
        self._reader = hiredis.Reader(notEnoughData=_MORE)
        self._exchange(_connect.greeting(self._url, "wakeup"))
        try:
            self._exchange([("CLIENT", "TRACKING", "ON")])
        except RedisRefused:
            self.tracking = False
            raise

    def _exchange(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        self.missed, self.noticed = set(), set()
        self._connection._sock.settimeout(_connect.TIMEOUT)
        self._connection._sock.sendall(b"".join(map(_pack, commands)))
        replies: list[Any] = []
        while len(replies) < len(commands):
            message = self._message()
            if not self._take(message, self.noticed if replies else self.missed):
                replies.append(message)
        for reply in replies:
            if isinstance(reply, hiredis.ReplyError):
                raise RedisRefused(str(reply))
        return replies

    def _message(self) -> Any:
        """Return the next thing that the server says.

        Raises:
            OSError: It says no more, or not in time (TimeoutError).
        """
        while (message := self._reader.gets()) is _MORE:
            chunk = self._connection._sock.recv(CHUNK)
            if not chunk:
                raise ConnectionResetError("connection closed by the server")
            self._reader.feed(chunk)
        return message

    def _take(self, message: Any, keys: set[bytes]) -> bool:
        """Whether this is a notice; add the keys that it is about."""
        # Other replies with two elements have none that is a text.
        if not (isinstance(message, list) and len(message) == 2 and message[0] == b"invalidate"):
            return False
        keys.update(self._asked if message[1] is None else message[1])  # None: all were flushed
        return True
