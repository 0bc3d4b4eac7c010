"""Waiting for a push without taking anything. [REL-1]

A blocking pop would hold a job in a reply that may never arrive. Instead, one connection has the
server track the queue keys: asking whether they exist arms a one-shot notice for each of them,
also for those that do not exist yet, and the next push by anybody sends it. A server or proxy
without tracking is polled.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

import redis

from jobwire import _connect

__all__ = ["Wakeup"]

SLICE = 0.25  # seconds between looks at the stop flag
POLL = 0.1  # seconds between fetches where tracking is not to be had


class Wakeup:
    """One connection that waits. Used by one thread at a time.

    Args:
        url: Where the server is.
        stop: Ends every wait.
    """

    def __init__(self, url: str, stop: threading.Event) -> None:
        self._stop = stop
        self._open = _connect.opener(url, timeout=_connect.TIMEOUT, forced={"protocol": 3})
        self._connection: Any = None
        self._tracking = True

    def wait(
        self, queue_keys: Sequence[str], timeout: float, *, changes: Sequence[str] = ()
    ) -> None:
        """Return when one of the lists may have jobs, or after `timeout` seconds.

        Also when one of the keys in `changes` is written to, whatever it holds.
        """
        if not self._tracking:
            self._stop.wait(min(POLL, timeout))
            return
        try:
            if self._arm(queue_keys, changes):
                return
            deadline = time.monotonic() + timeout
            while not self._stop.is_set() and (left := deadline - time.monotonic()) > 0:
                if self._connection.can_read(timeout=min(SLICE, left)):
                    self._connection.read_response(push_request=True)
                    return
        except redis.ResponseError:
            self._tracking = False  # the next wait polls
            self.close()
        except (redis.RedisError, OSError):
            # The fetch that follows meets the same trouble and reports it.
            self.close()
            self._stop.wait(POLL)

    def close(self) -> None:
        """Close the connection; the next wait opens a new one."""
        if self._connection is not None:
            self._connection.disconnect()
            self._connection = None

    def _arm(self, queue_keys: Sequence[str], changes: Sequence[str]) -> bool:
        """Have a notice sent by the next push; return whether there are jobs already."""
        if self._connection is None:
            self._connection = self._open()
            self._connection.send_command("CLIENT", "TRACKING", "ON")
            self._connection.read_response()
        if changes:
            self._exist(changes)
        return bool(queue_keys) and self._exist(queue_keys) > 0

    def _exist(self, keys: Sequence[str]) -> int:
        """Ask how many of the keys exist, and be told of the next write to each."""
        self._connection.send_command("EXISTS", *keys)
        reply = self._connection.read_response()
        while isinstance(reply, list):  # a late notice, which redis-py before 7 hands out
            reply = self._connection.read_response()
        return int(reply)
