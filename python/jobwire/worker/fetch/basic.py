"""Basic fetch: BRPOP, as Sidekiq does it. A crash loses the jobs in progress. [FETCH-1] [GUAR-3]"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import threading
import time
from collections.abc import Sequence
from typing import Any

from jobwire.connection.sync import SyncRedis
from jobwire.errors import RedisRefused, RedisTrouble
from jobwire.protocol.keys import Keys
from jobwire.protocol.ordering import QueueOrder
from jobwire.protocol.reliable import InFlightJob
from jobwire.protocol.wire import Batch, command, once
from jobwire.worker.base.outage import Outage
from jobwire.worker.base.timings import DEFAULT_TIMINGS, Timings
from jobwire.worker.fetch.other_pauses import OtherPauses
from jobwire.worker.outcome.immediate_sink import send_until_stored

__all__ = ["BasicFetcher"]

_log = logging.getLogger("jobwire.worker")


class BasicFetcher:
    """The basic `JobSource` of one capsule. Every thread blocks on a connection of its own.

    Args:
        redis: Where the queues are.
        keys: Key names.
        order: The capsule's queues.
        slots: How many jobs may run at a time.
        timings: The lengths of the waits.
    """

    lead = None  # each slot is a thread

    def __init__(
        self,
        redis: SyncRedis,
        keys: Keys,
        order: QueueOrder,
        *,
        slots: int,
        other_pauses: OtherPauses | None = None,
        timings: Timings = DEFAULT_TIMINGS,
    ) -> None:
        self.max_threads = slots
        self._redis = redis
        self._keys = keys
        self._order = order
        self._block = timings.brpop_timeout
        self._pause = timings.unusable_queues_pause
        self._put_back_timeout = timings.put_back_timeout
        self._closed = threading.Event()
        self._outage = Outage("fetching", self._closed, pause=timings.longest_outage_pause)
        # Any thread rebinds it as a whole and never changes it in place; the last check counts.
        self._broken: frozenset[str] = frozenset()
        self._looked_at = -math.inf  # monotonic
        self._asking = threading.Lock()  # Guards `_asked_at`; held by the thread that asks for all.
        self._paused: frozenset[str] = frozenset()  # rebound under `_asking`
        self._asked_at = -math.inf  # monotonic; guarded by `_asking`
        self._other_pauses = other_pauses
        self._counting = threading.Lock()  # Guards writes of `fetches`.
        self.fetches = 0

    def step(self) -> None:
        """Return None: each thread waits for itself, and has no job meanwhile."""

    def take(self, ran: float | None) -> InFlightJob | None:
        """Return the next job, waiting for one; None once closed. [FETCH-5] [FETCH-9] [FETCH-11]"""
        while not self._closed.is_set():
            with self._outage:
                reply = self._pop()
                if reply is None:
                    continue
                queue = reply[0].decode().removeprefix(self._keys.queue(""))
                held = InFlightJob("", queue, reply[1])
                if not self._closed.is_set():
                    return held
                self.put_back([held])
        return None

    def _pop(self) -> Any:
        """Return (queue key, payload), or None if nothing came. [FETCH-7]"""
        self._find_paused()
        keys = [
            self._keys.queue(name)
            for name in self._order.pick(random.shuffle)
            if name not in self._paused
        ]
        if not keys:
            self._closed.wait(self._pause)
            return None
        if self._broken and time.monotonic() - self._looked_at > self._pause:
            self._find_broken()
        keys = [key for key in keys if key not in self._broken]
        if not keys:
            self._closed.wait(self._pause)
            self._find_broken()
            return None
        with self._counting:
            self.fetches += 1
        began = time.monotonic()
        try:
            reply = self._redis.run(once(command("BRPOP", *keys, self._block)))
        except RedisRefused as error:
            if error.code != "WRONGTYPE":
                raise
            self._find_broken()
            return None
        self._outage.over(began)  # it may have waited for a push
        return reply

    def _find_paused(self) -> None:
        """Leave out paused queues. [REL-9]

        One thread asks for all threads, every two seconds, so that all of them honour a pause
        within four: two until it is seen, and two for a BRPOP that is under way.
        """
        with self._asking:
            if self._closed.is_set() or time.monotonic() - self._asked_at < self._block:
                return
            with contextlib.suppress(RedisRefused):  # a key of another type stops no work
                names = self._redis.run(once(command("SMEMBERS", self._keys.paused)))
                self._paused = frozenset(name.decode("utf-8", "replace") for name in names)
            if self._other_pauses is not None:
                self._paused |= frozenset(self._other_pauses.names(anew=True))
            self._asked_at = time.monotonic()

    def _find_broken(self) -> None:
        """Leave out queues whose keys are not lists, for as long as that lasts. [FETCH-13]"""
        self._looked_at = time.monotonic()
        keys = [self._keys.queue(name) for name in self._order.weights]
        kinds = self._redis.run(once(Batch([command("TYPE", key) for key in keys])))
        broken = frozenset(
            key for key, kind in zip(keys, kinds, strict=True) if kind not in (b"list", b"none")
        )
        for key in broken - self._broken:
            _log.error("queue key %s is not a list and is left out", key)
        self._broken = broken

    def acknowledge(self, held: InFlightJob) -> bool:
        """Do nothing: BRPOP has removed the job from Redis."""
        return True

    def put_back(self, jobs: Sequence[InFlightJob]) -> int:
        """Return unfinished jobs to their queues, to run next; retry for a while. [FETCH-6]

        Redis has no other copy, so a job whose push got no reply is put back once more.
        """
        deadline = time.monotonic() + self._put_back_timeout
        trouble = []
        for held in jobs:
            step = command("RPUSH", self._keys.queue(held.queue), held.text)
            try:
                send_until_stored(self._redis, step, "job not put back yet", deadline)
            except RedisTrouble as error:  # the queue of the next job may be usable
                trouble.append(error)
        if trouble:
            raise trouble[0]
        return len(jobs)

    def close(self) -> None:
        """Take no more jobs. Blocked threads notice within two seconds. [FETCH-14]"""
        self._closed.set()
