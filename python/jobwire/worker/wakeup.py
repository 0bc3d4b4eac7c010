"""Waiting for others to write, without taking anything and without asking again. [REL-1]

A blocking pop would hold a job in a reply that may never arrive. Instead, one connection has the
server track what it asked about: each answer arms a one-shot notice, also for keys that do not
exist yet, and the next write to them by anybody sends it. A server or proxy without tracking is
polled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import redis

from jobwire import _connect
from jobwire.wire import Arg

__all__ = ["Wakeup", "Watch"]

SLICE = 0.25  # seconds between looks at the stop flag
POLL = 0.1  # seconds between fetches where tracking is not to be had


class Watch:
    """One connection that asks and then waits for the answers to change.

    Used by one thread at a time.

    Args:
        url: Where the server is.
        stop: Ends every wait.

    Attributes:
        tracking: False once the server has refused to track.
        noticed: Whether an answer has changed since `ask` began.
    """

    def __init__(self, url: str, stop: threading.Event) -> None:
        self.tracking = True
        self._stop = stop
        self._url = url
        self._open = _connect.opener(url, timeout=_connect.TIMEOUT, protocol=3)
        self._connection: Any = None
        self.noticed = False

    def ask(self, commands: Sequence[Sequence[Arg]]) -> list[Any]:
        """Return the replies to reading commands; `wait` ends when one of them has changed.

        Raises:
            redis.ResponseError: The server refuses to track, or one of the commands.
            redis.RedisError, OSError: There is no connection.
        """
        if self._connection is None:
            self._connect()
        self.noticed = False
        for words in commands:
            self._connection.send_command(*words)
        return [self._reply() for _ in commands]

    def wait(self, timeout: float) -> bool:
        """Wait for a notice; return `noticed`."""
        deadline = time.monotonic() + timeout
        while not self.noticed and not self._stop.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                break
            if self._connection.can_read(timeout=min(SLICE, left)):
                self._connection.read_response(push_request=True)
                self.noticed = True
        return self.noticed

    def close(self) -> None:
        """Close the connection; the next question opens a new one."""
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None

    def _connect(self) -> None:
        self._connection = self._open()
        for words in _connect.greeting(self._url, "wakeup"):
            self._connection.send_command(*words)
            self._connection.read_response()
        try:
            self._connection.send_command("CLIENT", "TRACKING", "ON")
            self._connection.read_response()
        except redis.ResponseError:
            self.tracking = False
            raise

    def _reply(self) -> Any:
        """Return the next reply, past notices about earlier ones."""
        while True:
            reply = self._connection.read_response(push_request=True)
            # Other replies with two elements have none that is a text.
            if not (isinstance(reply, list) and len(reply) == 2 and reply[0] == b"invalidate"):
                return reply
            self.noticed = True


class Wakeup:
    """Waits for jobs in queues. Used by one thread at a time.

    Args:
        url: Where the server is.
        stop: Ends every wait.
    """

    def __init__(self, url: str, stop: threading.Event) -> None:
        self._stop = stop
        self._watch = Watch(url, stop)
        self._watched: frozenset[str] = frozenset()

    def wait(
        self, queue_keys: Sequence[str], timeout: float, *, changes: Sequence[str] = ()
    ) -> None:
        """Return when one of the lists may have jobs, or after `timeout` seconds.

        Also when one of the keys in `changes` is written to, whatever it holds. The first wait
        for a change returns at once: the write may have come since the caller looked. [REL-9]
        """
        if not self._watch.tracking:
            self._stop.wait(min(POLL, timeout))
            return
        try:
            if not self._jobs(queue_keys, changes):
                self._watch.wait(timeout)
            if self._watch.noticed:  # of whatever key: what is watched has to be asked about anew
                self._watched = frozenset()
        except redis.ResponseError:
            self._watch.tracking = False  # the next wait polls
            self.close()
        except (redis.RedisError, OSError):
            # The fetch that follows meets the same trouble and reports it.
            self.close()
            self._stop.wait(POLL)

    def close(self) -> None:
        """Close the connection; the next wait opens a new one."""
        self._watched = frozenset()
        self._watch.close()

    def _jobs(self, queue_keys: Sequence[str], changes: Sequence[str]) -> bool:
        """Have notices sent; return whether there are jobs, or what nobody has looked at yet."""
        unseen = not self._watched.issuperset(changes)
        self._watched = frozenset(changes)
        questions = [("EXISTS", *keys) for keys in (changes, queue_keys) if keys]
        replies = self._watch.ask(questions)
        return unseen or (bool(queue_keys) and replies[-1] > 0)
