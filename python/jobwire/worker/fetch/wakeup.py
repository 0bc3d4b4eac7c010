"""The wait of an idle worker for a push, without taking jobs and without polling. [REL-1]

A blocking pop would hold a job in a reply that may never arrive. Instead, one connection has the
server track the queues. A server or proxy without tracking is polled.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from jobwire.connection.watch import Watch
from jobwire.errors import RedisRefused, RedisTrouble
from jobwire.worker.base.timings import DEFAULT_TIMINGS, Timings

__all__ = ["Wakeup"]


class Wakeup:
    """Waits for jobs in queues. Used by one thread at a time.

    Args:
        url: Where the server is.
        stop: Ends every wait.
        timings: How long the waits are.
    """

    def __init__(self, url: str, stop: threading.Event, timings: Timings = DEFAULT_TIMINGS) -> None:
        self._stop = stop
        self._poll_interval = timings.untracked_poll_interval
        self._watch = Watch(url, stop, stop_check_interval=timings.stop_check_interval)
        self._watched: frozenset[bytes] = frozenset()  # changes of which will be noticed

    def wait(
        self,
        queue_keys: Sequence[str],
        timeout: float,
        *,
        noticed: Callable[[], None],
        changes: Sequence[str] = (),
    ) -> None:
        """Return when one of the lists may have jobs, or after `timeout` seconds. [FETCH-10]

        Also return when one of the keys in `changes` is written to, with any value. The first wait
        for a change returns at once: the write may have come since the caller read it. [REL-9]

        Args:
            queue_keys: The lists.
            timeout: Seconds.
            noticed: Called at once when a notice has come.
            changes: The other keys.
        """
        if not self._watch.tracking:
            self._stop.wait(min(self._poll_interval, timeout))
            return
        try:
            if not self._something(queue_keys, changes):
                self._watch.wait(timeout)
                if self._watch.noticed:
                    noticed()
                if not self._watch.noticed.isdisjoint(self._watched):
                    self._watched = frozenset()
        except RedisRefused:
            self._watch.tracking = False  # the next wait polls
            self.close()
        except RedisTrouble:
            # The fetch that follows meets the same trouble and reports it.
            self.close()
            self._stop.wait(self._poll_interval)

    def close(self) -> None:
        """Close the connection; the next wait opens a new one."""
        self._watched = frozenset()
        self._watch.close()

    def _something(self, queue_keys: Sequence[str], changes: Sequence[str]) -> bool:
        """Have notices sent; return True if there are jobs, or changes that were not seen yet."""
        asked = frozenset(key.encode() for key in changes)
        # The queues come last, so that all earlier notices about them are old.
        replies = self._watch.ask([("EXISTS", *keys) for keys in (changes, queue_keys) if keys])
        unseen = not asked <= self._watched
        changed = not asked.isdisjoint(self._watch.missed | self._watch.noticed)
        self._watched = frozenset() if changed else asked
        self._watch.noticed.clear()
        return unseen or changed or (bool(queue_keys) and replies[-1] > 0)
