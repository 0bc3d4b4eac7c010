"""Waiting for others to write, without taking anything and without asking again. [REL-1]

A blocking pop would hold a job in a reply that may never arrive. Instead, one connection has the
server track what it asked about: each answer arms a one-shot notice, also for keys that do not
exist yet, and the next write to them by anybody sends it. A server or proxy without tracking is
polled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import hiredis
import redis

from jobwire.connection import connect as _connect
from jobwire.protocol.wire import Arg

__all__ = ["LOST", "Wakeup", "Watch"]

SLICE = 0.25  # seconds between looks at the stop flag
POLL = 0.1  # seconds between fetches where tracking is not to be had
CHUNK = 65_536  # bytes to read at once
LOST = (redis.RedisError, OSError, hiredis.HiredisError)
_pack: Any = hiredis.pack_command
_MORE = object()  # what hiredis returns when a message is not all there


class Watch:
    """One connection that asks and then waits for the answers to change.

    Used by one thread at a time. It reads for itself, since redis-py does not tell what it
    makes of a notice that it finds in front of a reply.

    Args:
        url: Where the server is.
        stop: Ends every wait.

    Attributes:
        tracking: False once the server has refused to track.
        missed: Keys of notices that came before the answers of the last `ask`.
        noticed: Keys of notices that came after the first of these answers.
    """

    def __init__(self, url: str, stop: threading.Event) -> None:
        self.tracking = True
        self.missed: set[bytes] = set()
        self.noticed: set[bytes] = set()
        self._stop = stop
        self._url = url
        self._open = _connect.opener(url, timeout=_connect.TIMEOUT, protocol=3)
        self._connection: Any = None
        self._reader: Any = None
        self._asked: set[bytes] = set()

    def ask(self, commands: Sequence[tuple[Arg, ...]]) -> list[Any]:
        """Return the replies to reading commands; `wait` ends when one of them has changed.

        Raises:
            redis.ResponseError: The server refuses to track, or one of the commands.
            Exception of `LOST`: There is no connection.
        """
        if self._connection is None:
            self._connect()
        self._asked = {str(word).encode() for words in commands for word in words}
        return self._exchange(commands)

    def wait(self, timeout: float) -> None:
        """Wait until there is something in `noticed`."""
        deadline = time.monotonic() + timeout
        while not self.noticed and not self._stop.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                break
            self._connection._sock.settimeout(min(SLICE, left))
            try:
                self._take(self._message(), self.noticed)
            except TimeoutError:
                continue

    def close(self) -> None:
        """Close the connection; the next question opens a new one."""
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None

    def _connect(self) -> None:
        if self._stop.is_set():
            raise ConnectionAbortedError("stopping")  # or nobody would close it
        self._connection = self._open()
        self._reader = hiredis.Reader(notEnoughData=_MORE)
        self._exchange(_connect.greeting(self._url, "wakeup"))
        try:
            self._exchange([("CLIENT", "TRACKING", "ON")])
        except redis.ResponseError:
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
                raise redis.ResponseError(str(reply))
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


class Wakeup:
    """Waits for jobs in queues. Used by one thread at a time.

    Args:
        url: Where the server is.
        stop: Ends every wait.
    """

    def __init__(self, url: str, stop: threading.Event) -> None:
        self._stop = stop
        self._watch = Watch(url, stop)
        self._watched: frozenset[bytes] = frozenset()  # changes of which will be noticed

    def wait(
        self,
        queue_keys: Sequence[str],
        timeout: float,
        *,
        noticed: Callable[[], None],
        changes: Sequence[str] = (),
    ) -> None:
        """Return when one of the lists may have jobs, or after `timeout` seconds.

        Also when one of the keys in `changes` is written to, whatever it holds. The first wait
        for a change returns at once: the write may have come since the caller looked. [REL-9]

        Args:
            queue_keys: The lists.
            timeout: Seconds.
            noticed: Called at once when a notice has come.
            changes: The other keys.
        """
        if not self._watch.tracking:
            self._stop.wait(min(POLL, timeout))
            return
        try:
            if not self._something(queue_keys, changes):
                self._watch.wait(timeout)
                if self._watch.noticed:
                    noticed()
                if not self._watch.noticed.isdisjoint(self._watched):
                    self._watched = frozenset()
        except redis.ResponseError:
            self._watch.tracking = False  # the next wait polls
            self.close()
        except LOST:
            # The fetch that follows meets the same trouble and reports it.
            self.close()
            self._stop.wait(POLL)

    def close(self) -> None:
        """Close the connection; the next wait opens a new one."""
        self._watched = frozenset()
        self._watch.close()

    def _something(self, queue_keys: Sequence[str], changes: Sequence[str]) -> bool:
        """Have notices sent; return whether there are jobs, or what nobody has looked at yet."""
        asked = frozenset(key.encode() for key in changes)
        # The queues come last, so that all earlier notices about them are old.
        replies = self._watch.ask([("EXISTS", *keys) for keys in (changes, queue_keys) if keys])
        unseen = not asked <= self._watched
        changed = not asked.isdisjoint(self._watch.missed | self._watch.noticed)
        self._watched = frozenset() if changed else asked
        self._watch.noticed.clear()
        return unseen or changed or (bool(queue_keys) and replies[-1] > 0)
