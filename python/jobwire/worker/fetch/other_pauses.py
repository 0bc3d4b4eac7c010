"""Queues that are paused for the workers of another product. [KEY-6]"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection

from jobwire.connection.sync import SyncRedis
from jobwire.errors import RedisRefused
from jobwire.protocol.wire import command, once

__all__ = ["OtherPauses"]

ANSWER_S = 1.0  # for which a worker that is busy trusts what it saw

_log = logging.getLogger("jobwire.worker")


class OtherPauses:
    """Reads the set of another product, and never writes it. Thread-safe.

    Args:
        redis: Where the set is.
        key: The set of bare queue names.

    Attributes:
        key: The set.
    """

    def __init__(self, redis: SyncRedis, key: str) -> None:
        self.key = key
        self._redis = redis
        self._lock = threading.Lock()
        self._names: frozenset[str] = frozenset()  # guarded by `_lock`
        self._told = False  # guarded by `_lock`
        self._until = 0.0  # monotonic; guarded by `_lock`

    def names(self, *, anew: bool = False) -> Collection[str]:
        """Return the names; `anew` asks the server also if the last answer is fresh."""
        with self._lock:
            if anew or time.monotonic() >= self._until:
                try:
                    members = self._redis.run(once(command("SMEMBERS", self.key)))
                    self._names = frozenset(name.decode("utf-8", "replace") for name in members)
                except RedisRefused as error:  # which stops no work
                    if not self._told:
                        _log.warning(
                            "pauses are not honoured: %s cannot be read: %s; with an ACL, add "
                            "the rule ~%s",
                            *(self.key, error, self.key),
                        )
                    self._told = True
                self._until = time.monotonic() + ANSWER_S
            return self._names
