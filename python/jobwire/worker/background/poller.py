"""The poller: a thread that promotes due jobs. [SCHED-5] to [SCHED-11]

It runs no client middleware, which any promoter may do. [SCHED-28]
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from jobwire.connection.sync import SyncRedis
from jobwire.connection.watch import Watch, WatchGuest
from jobwire.errors import RedisRefused, RedisTrouble
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.promotion import BATCH, promote_batch
from jobwire.protocol.times import Generation
from jobwire.protocol.wire import Arg, Batch, Command, ErrorReply, Op, command, once
from jobwire.worker.base.outage import Outage
from jobwire.worker.base.timings import DEFAULT_TIMINGS, Timings

__all__ = ["Poller"]

LATEST = 1.5  # safety intervals after which the thread looks by itself, as no heartbeat has
PROCESSES_COUNT_FOR_S = 60.0  # the number of processes of the fleet is read again after this

_log = logging.getLogger("jobwire.worker")


class Poller:
    """Promotes due jobs; each process has one, and any number of processes may run it.

    Args:
        redis: The Redis to use.
        keys: Key names.
        interval: Average seconds between polls, or None for the fleet's rule. [SCHED-8]
        precise: True to wake up for each member when it is due. If the server does not notify of
            new members, the poller looks at intervals, and the log says so. [SCHED-11] [SCHED-27]
        generation: Returns the generation of the times to write.
        dead_limits: Returns the limits of the dead set at this moment.
        timings: Intervals between polls.
        beside: A connection that waits for notices, to be its guest; None for a connection of its
            own.
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
        beside: Watch | None = None,
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
            for zset in (keys.retry, keys.schedule)  # retries first [SCHED-21]
        ]
        self._processes = 1
        self._counted_at = -math.inf
        self._counting = Outage("counting processes", self._stop, pause=pause)
        self._watch: Watch | WatchGuest
        self._watch = self._own_watch() if beside is None else WatchGuest(beside, self._stop)
        self._awaited: float | None = None  # epoch seconds; None while the thread does not wait
        self._looked_at = 0.0  # monotonic; of the last look, also one with a heartbeat
        self._thread = threading.Thread(target=self._run, name="jobwire-poller", daemon=True)

    def _own_watch(self) -> Watch:
        interval = self._timings.stop_check_interval
        return Watch(self._redis.url, self._stop, stop_check_interval=interval)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def look(self) -> Op[None]:
        """Wake the thread if a notice was lost; for a message that is sent in any case."""
        due, asked_at = self._awaited, time.monotonic()
        if due is not None and asked_at >= self._looked_at + self._timings.poll_safety_interval:
            question = [Command(words) for words in self._question(time.time())]
            replies = yield Batch(question)
            if any(isinstance(reply, ErrorReply) for reply in replies):
                return  # the thread will meet the same error and report it
            next_due, sets = self._answer(replies)
            self._looked_at = asked_at
            if sets or next_due < due:
                self._watch.wake()

    def close(self, timeout: float) -> None:
        """Stop, at the latest between two batches. [SCHED-10]"""
        self._stop.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        timings = self._timings
        wait = 0.0
        if not self._precise:
            wait = timings.first_poll_wait(self._interval, jitter=random.random())
        while not self._stop.wait(wait):
            now, looked = time.time(), time.monotonic()
            coming = self._watch_for(now) if self._precise else None
            next_due, due = (None, None) if coming is None else coming
            for zset, outage in self._sets:
                if due is None or zset in due:
                    with outage:
                        self._look(zset)
                else:
                    outage.over()  # it was just read; a look may not be needed for hours
            if next_due is not None:
                self._await(next_due)
                wait = 0.0 if self._stop.is_set() else self._gap(looked)
            elif self._precise and self._watch.tracking:
                wait = timings.poll_outage_pause
            else:
                wait = self._next_wait()
        self._watch.close()

    def _look(self, zset: str) -> None:
        """Move all due members of one set."""
        # Members that other pollers take are skipped. So pollers that run at the same time spread
        # over the set, and do not all do the same work.
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
                    "due member of %s is not a job, moved to the dead set: %s: %.200r",
                    zset,
                    problem,
                    member,
                )
            stuck += result.stuck
            if result.seen == BATCH:
                taken += result.taken
            elif taken:
                stuck = taken = 0  # once more, for skipped members that were not taken
            else:
                break

    def _next_wait(self) -> float:
        if self._interval is not None:
            return self._timings.next_poll_wait(self._interval, processes=1, jitter=random.random())
        processes = self._count_processes()
        return self._timings.next_poll_wait(None, processes=processes, jitter=random.random())

    def _gap(self, looked: float) -> float:
        """Return the seconds to wait before the next look, the last one being at `looked`.

        A change wakes the pollers of all processes. They do not look in the same instant, and if
        changes are frequent, all of them together look once in `poll_min_gap` on average.
        """
        gap = self._timings.poll_min_gap
        wait = gap * (0.5 + random.random())
        elapsed = time.monotonic() - looked
        if elapsed >= self._timings.poll_safety_interval:
            return wait  # nothing changed
        if looked >= self._counted_at + PROCESSES_COUNT_FOR_S:
            self._processes = self._count_processes()
        return max(wait, 2 * random.random() * gap * self._processes - elapsed)

    def _count_processes(self) -> int:
        processes = 1
        with self._counting:
            processes = self._redis.run(once(command("SCARD", self._keys.processes)))
            self._counted_at = time.monotonic()
        return processes

    def _watch_for(self, now: float) -> tuple[float, list[str]] | None:
        """Ask for notices of new members; return the time of the next one, and sets with due ones.

        The next member is due after `now`, the due members at `now` or before. Called before the
        poll, so that no new member goes unnoticed in between. Returns None if the server does not
        send notices, or cannot be reached.
        """
        if not self._watch.tracking:
            return None
        self._looked_at = time.monotonic()
        try:
            return self._answer(self._watch.ask(self._question(now)))
        except RedisTrouble as error:
            self._watch.close()
            if isinstance(error, RedisRefused) and "WRONGTYPE" not in str(error):
                if isinstance(self._watch, WatchGuest):  # the question of its host may be refused
                    self._watch = self._own_watch()
                    return None
                self._watch.tracking = False
                _log.warning("no notices of new scheduled jobs, polling at intervals: %s", error)
            return None

    def _question(self, now: float) -> list[tuple[Arg, ...]]:
        limits = (f"({now!r}", "+inf", "BYSCORE", "LIMIT", 0, 1, "WITHSCORES")
        names = [zset for zset, _ in self._sets]
        return [
            *(("ZRANGE", zset, *limits) for zset in names),
            *(("ZCOUNT", zset, "-inf", now) for zset in names),
        ]

    def _answer(self, replies: Sequence[Any]) -> tuple[float, list[str]]:
        names = [zset for zset, _ in self._sets]
        following, counts = replies[: len(names)], replies[len(names) :]
        # RESP3 gives a list of pairs, RESP2 one flat list; the score comes last in both.
        ends = [reply[-1] for reply in following if reply]
        scores = (float(end[-1] if isinstance(end, list) else end) for end in ends)
        next_due = min(scores, default=math.inf)
        return next_due, [zset for zset, count in zip(names, counts, strict=True) if count]

    def _await(self, due: float) -> None:
        """Wait until `due`, or for a notice of an earlier member."""
        latest = LATEST * self._timings.poll_safety_interval
        self._awaited = due
        try:
            while not (self._watch.noticed or self._stop.is_set()):
                left = min(due - time.time(), self._looked_at + latest - time.monotonic())
                if left <= 0:
                    break
                self._watch.wait(left)
        except RedisTrouble:
            self._watch.close()  # the next poll meets the same trouble and reports it
        finally:
            self._awaited = None
