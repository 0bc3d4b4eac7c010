"""The thread that promotes due jobs. [SCHED-5] to [SCHED-11]"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable

from jobwire.connection.sync import SyncRedis
from jobwire.connection.watch import Watch
from jobwire.errors import RedisRefused, RedisTrouble
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.promotion import BATCH, promote_batch
from jobwire.protocol.times import Generation
from jobwire.protocol.wire import command, once
from jobwire.worker.fetch.outage import Outage
from jobwire.worker.fetch.timings import DEFAULT_TIMINGS, Timings

__all__ = ["Poller"]

_log = logging.getLogger("jobwire.worker")


class Poller:
    """One per process; any number may run side by side.

    Args:
        redis: Where.
        keys: Key names.
        interval: Average seconds between looks, or None for the fleet's rule. [SCHED-8]
        precise: Whether to wake up for each member when it is due. Where the server does not
            tell of new members, `interval` holds. [SCHED-11]
        generation: Returns how to write times.
        dead_limits: Returns the limits of the dead set at this moment.
        timings: How long it waits between its looks.
    """

    def __init__(
        self,
        redis: SyncRedis,
        keys: Keys,
        *,
        interval: float | None,
        precise: bool = False,
        generation: Callable[[], Generation],
        dead_limits: Callable[[], DeadSetLimits],
        timings: Timings = DEFAULT_TIMINGS,
    ) -> None:
        self._timings = timings
        self._redis = redis
        self._keys = keys
        self._interval = interval
        self._precise = precise
        self._generation = generation
        self._dead_limits = dead_limits
        self._stop = threading.Event()
        pause = timings.longest_outage_pause
        self._sets = [
            (zset, Outage(f"promoting due jobs of {zset}", self._stop, pause=pause))
            for zset in (keys.retry, keys.schedule)  # retries first, as Sidekiq
        ]
        self._counting = Outage("counting processes", self._stop, pause=pause)
        self._watch = Watch(redis.url, self._stop, stop_check_interval=timings.stop_check_interval)
        self._thread = threading.Thread(target=self._run, name="jobwire-poller", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Stop, between two batches at the latest. [SCHED-10]"""
        self._stop.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        timings = self._timings
        wait = 0.0
        if not self._precise:
            wait = timings.first_poll_wait(self._interval, jitter=random.random())
        while not self._stop.wait(wait):
            now = time.time()
            next_due = self._watch_for(now) if self._precise else None
            for zset, outage in self._sets:
                with outage:
                    self._look(zset)
            if next_due is not None:
                self._await(next_due)
                # Not all of a fleet in the same instant.
                wait = timings.poll_min_gap * (0.5 + random.random())
            elif self._precise and self._watch.tracking:
                wait = timings.poll_outage_pause
            else:
                wait = self._next_wait()
        self._watch.close()

    def _look(self, zset: str) -> None:
        """Move everything that is due in one set."""
        # What others take meanwhile is passed over: those who look at the same time spread over
        # the set, instead of all doing the same work.
        stuck = taken = 0
        while not self._stop.is_set():
            result = self._redis.run(
                promote_batch(
                    self._keys,
                    zset,
                    now=time.time(),
                    generation=self._generation(),
                    dead_limits=self._dead_limits(),
                    skip=stuck + taken,
                )
            )
            for member, problem in result.killed:
                _log.error(
                    "due member of %s is no job and was buried: %s: %.200r", zset, problem, member
                )
            stuck += result.stuck
            if result.seen == BATCH:
                taken += result.taken
            elif taken:
                stuck = taken = 0  # once more, for what was passed over and is there after all
            else:
                break

    def _next_wait(self) -> float:
        if self._interval is not None:
            return self._timings.next_poll_wait(self._interval, processes=1, jitter=random.random())
        processes = 1
        with self._counting:
            processes = self._redis.run(once(command("SCARD", self._keys.processes)))
        return self._timings.next_poll_wait(None, processes=processes, jitter=random.random())

    def _watch_for(self, now: float) -> float | None:
        """Have notices sent of new members; return when the next one is due, after `now`.

        Before the look, so that none comes unnoticed between the two. None: the server does not
        tell, or cannot be asked.
        """
        if not self._watch.tracking:
            return None
        limits = (f"({now!r}", "+inf", "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
        try:
            replies = self._watch.ask([("ZRANGE", zset, *limits) for zset, _ in self._sets])
        except RedisTrouble as error:
            self._watch.close()
            if isinstance(error, RedisRefused) and "WRONGTYPE" not in str(error):
                self._watch.tracking = False
                _log.warning("no notice of new scheduled jobs, looking at intervals: %s", error)
            return None
        return min((float(score) for reply in replies for _, score in reply), default=math.inf)

    def _await(self, due: float) -> None:
        """Wait until then, or for a notice of an earlier member."""
        try:
            self._watch.wait(min(max(due - time.time(), 0.0), self._timings.poll_safety_interval))
        except RedisTrouble:
            self._watch.close()  # the look that follows meets the same trouble and reports it
