"""Basic fetch: BRPOP, as Sidekiq does it. A crash loses the jobs in progress. [FETCH-1]"""

from __future__ import annotations

import contextlib
import logging
import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from jobwire.connection.sync import SyncRedis
from jobwire.errors import RedisRefused, RedisTrouble
from jobwire.protocol.dead_set import DeadSetLimits, dead_key, kill
from jobwire.protocol.keys import Keys
from jobwire.protocol.ordering import QueueOrder
from jobwire.protocol.reliable import InFlightJob
from jobwire.protocol.retry import Discard, Kill, Retry
from jobwire.protocol.stats import count
from jobwire.protocol.times import utc_day
from jobwire.protocol.wire import Batch, Step, command, once
from jobwire.worker.execute import joblog
from jobwire.worker.fetch.outage import Outage, next_pause
from jobwire.worker.fetch.source import Done, Outcome, Requeue, Unreadable

__all__ = ["BasicFetcher", "Tally"]

BLOCK = 2  # seconds, less than the connection's read timeout [ENV-3]
PAUSE = 1.0
PUT_BACK = 5.0  # seconds that a stop insists on putting jobs back

_log = logging.getLogger("jobwire.worker")


class Tally:
    """Executions that are counted in memory and written with the heartbeat. [STAT-1]"""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processed = 0
        self._failed = 0

    def add(self, *, failed: bool) -> None:
        """Count one execution."""
        with self._lock:
            self._processed += 1
            self._failed += failed

    def flush(self, redis: SyncRedis, keys: Keys) -> None:
        """Write the counts; keep them if that fails."""
        with self._lock:
            processed, failed = self._processed, self._failed
            self._processed = self._failed = 0
        if not processed:
            return
        day = utc_day(time.time())
        try:
            redis.run(once(count(keys, processed=processed, failed=failed, day=day)))
        except RedisTrouble:
            with self._lock:
                self._processed += processed
                self._failed += failed
            raise


class BasicFetcher:
    """The basic `Fetcher` of one capsule. Every thread blocks on a connection of its own.

    Args:
        redis: Where from.
        keys: Key names.
        order: The capsule's queues.
        slots: How many jobs may run at a time.
        tally: Shared by all capsules of the process.
        grave: Returns the burial parameters of this moment.
    """

    needs_all_threads = True

    def __init__(
        self,
        redis: SyncRedis,
        keys: Keys,
        order: QueueOrder,
        *,
        slots: int,
        tally: Tally,
        dead_limits: Callable[[], DeadSetLimits],
    ) -> None:
        self.most_threads = slots
        self._redis = redis
        self._keys = keys
        self._order = order
        self._tally = tally
        self._dead_limits = dead_limits
        self._closed = threading.Event()
        self._outage = Outage("fetching", self._closed)
        self._broken: set[str] = set()
        self._looked_at = 0.0
        self._paused: set[str] = set()
        self._asked_at = -math.inf
        self._asking = threading.Lock()
        self._queues = {keys.queue(name).encode(): name for name in order.weights}

    def take(self, over: bool) -> InFlightJob | None:
        """Return the next job, waiting for one; None once closed. [FETCH-5]"""
        while not self._closed.is_set():
            with self._outage:
                reply = self._pop()
                if reply is None:
                    continue
                held = InFlightJob("", self._queues[reply[0]], reply[1])
                if not self._closed.is_set():
                    return held
                self.put_back([held])
        return None

    def on_help_wanted(self, call: Callable[[], None]) -> None:
        """Every slot has its thread already."""

    def running(self, seconds: float) -> None:
        """No other thread waits for this one."""

    def free(self) -> None:
        """Slots are threads."""

    def hurry(self) -> None:
        """Outcomes are stored at once."""

    def store(self, held: InFlightJob, outcome: Outcome, *, seconds: float) -> bool:
        """Store the outcome of a job; nobody else could have had it."""
        self.settle(held, outcome, seconds=seconds)
        return True

    def _pop(self) -> Any:
        """Return (queue key, payload), or None if nothing came. [FETCH-7]"""
        self._find_paused()
        keys = [
            self._keys.queue(name)
            for name in self._order.pick(random.shuffle)
            if name not in self._paused
        ]
        if not keys:
            self._closed.wait(PAUSE)
            return None
        if self._broken and time.monotonic() - self._looked_at > PAUSE:
            self._find_broken()
        keys = [key for key in keys if key not in self._broken]
        if not keys:
            self._closed.wait(PAUSE)
            self._find_broken()
            return None
        try:
            return self._redis.run(once(command("BRPOP", *keys, BLOCK)))
        except RedisRefused as error:
            if error.code != "WRONGTYPE":
                raise
            self._find_broken()
            return None

    def _find_paused(self) -> None:
        """Leave out queues that somebody paused. [REL-9]

        One thread asks for all of them, every two seconds, so that a pause is honoured by all
        within four: two until it is seen, and two for a BRPOP that is under way.
        """
        with self._asking:
            if self._closed.is_set() or time.monotonic() - self._asked_at < BLOCK:
                return
            with contextlib.suppress(RedisRefused):  # a key of another type stops no work
                names = self._redis.run(once(command("SMEMBERS", self._keys.paused)))
                self._paused = {name.decode("utf-8", "replace") for name in names}
            self._asked_at = time.monotonic()

    def _find_broken(self) -> None:
        """Leave out queues that are no lists, for as long as they are none."""
        self._looked_at = time.monotonic()
        keys = [self._keys.queue(name) for name in self._order.weights]
        kinds = self._redis.run(once(Batch([command("TYPE", key) for key in keys])))
        broken = {
            key for key, kind in zip(keys, kinds, strict=True) if kind not in (b"list", b"none")
        }
        for key in broken - self._broken:
            _log.error("queue key %s is no list and is left out", key)
        self._broken = broken

    def settle(self, held: InFlightJob, outcome: Outcome, *, seconds: float) -> None:
        """Store the outcome of a job, trying until Redis takes it or the process stops."""
        joblog.flush()
        if not isinstance(outcome, Unreadable | Requeue):
            self._tally.add(failed=not isinstance(outcome, Done))
        step: Step
        match outcome:
            case Done(after):
                if after is None:
                    return
                step = after
            case Discard():
                return
            case Retry(text, at):
                step = command("ZADD", self._keys.retry, at, text)
            case Kill(text):
                step = kill(self._keys.dead, text, self._dead_limits())
            case Requeue(text):
                step = command("LPUSH", self._keys.queue(held.queue), text)
            case Unreadable(problem):
                step = kill(dead_key(self._keys, problem), held.text, self._dead_limits())
        self._insist(step, "outcome of a job not stored yet")

    def put_back(self, held: Sequence[InFlightJob]) -> int:
        """Return unfinished jobs to their queues, to run next; try for a while. [FETCH-6]

        Redis has no other copy, so where an answer was lost the job is put back once more.
        """
        deadline = time.monotonic() + PUT_BACK
        for each in held:
            step = command("RPUSH", self._keys.queue(each.queue), each.text)
            self._insist(step, "job not put back yet", deadline)
        return len(held)

    def _insist(self, step: Step, complaint: str, deadline: float = math.inf) -> None:
        """Send a step until Redis takes it.

        Raises:
            RedisTrouble: It did not until a monotonic time.
        """
        began = time.monotonic()
        reported = False
        while True:
            try:
                self._redis.run(once(step))
                return
            except RedisTrouble as error:
                now = time.monotonic()
                if now >= deadline:
                    raise
                if not reported:
                    _log.error("%s: %s", complaint, error)
                    reported = True
                time.sleep(next_pause(now - began, jitter=random.random()))

    def close(self) -> None:
        """Take no more jobs. Blocked threads notice within two seconds."""
        self._closed.set()
