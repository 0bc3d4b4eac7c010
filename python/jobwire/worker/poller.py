"""The thread that promotes due jobs. [SCHED-5] to [SCHED-10]"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable

from jobwire._sync import SyncRedis
from jobwire.graves import Grave
from jobwire.keys import Keys
from jobwire.promotion import BATCH, first_wait, next_wait, promote_batch
from jobwire.times import Generation
from jobwire.wire import command, once
from jobwire.worker.outage import Outage

__all__ = ["Poller"]

_log = logging.getLogger("jobwire.worker")


class Poller:
    """One per process; any number may run side by side.

    Args:
        redis: Where.
        keys: Key names.
        interval: Average seconds between looks, or None for the fleet's rule. [SCHED-8]
        generation: Returns how to write times.
        grave: Returns the burial parameters of this moment.
    """

    def __init__(
        self,
        redis: SyncRedis,
        keys: Keys,
        *,
        interval: float | None,
        generation: Callable[[], Generation],
        grave: Callable[[], Grave],
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._interval = interval
        self._generation = generation
        self._grave = grave
        self._stop = threading.Event()
        self._sets = [
            (zset, Outage(f"promoting due jobs of {zset}", self._stop))
            for zset in (keys.retry, keys.schedule)  # retries first, as Sidekiq
        ]
        self._counting = Outage("counting processes", self._stop)
        self._thread = threading.Thread(target=self._run, name="jobwire-poller", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Stop, between two batches at the latest. [SCHED-10]"""
        self._stop.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        wait = first_wait(self._interval, dice=random.random())
        while not self._stop.wait(wait):
            for zset, outage in self._sets:
                with outage:
                    self._look(zset)
            wait = self._next_wait()

    def _look(self, zset: str) -> None:
        """Move everything that is due in one set."""
        skip = 0
        while not self._stop.is_set():
            result = self._redis.run(
                promote_batch(
                    self._keys,
                    zset,
                    now=time.time(),
                    generation=self._generation(),
                    grave=self._grave(),
                    skip=skip,
                )
            )
            for member, problem in result.buried:
                _log.error(
                    "due member of %s is no job and was buried: %s: %.200r", zset, problem, member
                )
            if result.seen < BATCH:
                break
            skip += result.stuck + result.taken

    def _next_wait(self) -> float:
        if self._interval is not None:
            return next_wait(self._interval, processes=1, dice=random.random())
        processes = 1
        with self._counting:
            processes = self._redis.run(once(command("SCARD", self._keys.processes)))
        return next_wait(None, processes=processes, dice=random.random())
