"""Reliable fetch: batches into the private hash, whoever is idle fetches for all. [REL-1]

There is no fetching thread. Of the idle threads one has the turn: it fetches for itself and for
those that wait behind it, keeps the first job and leaves the rest in a buffer. So the thread that
runs a job is the one that waited for it, and a job costs no hand-over.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from jobwire._sync import SyncRedis
from jobwire.beat import LEASE
from jobwire.errors import NoReply, RedisTrouble
from jobwire.keys import Keys
from jobwire.ordering import QueueOrder
from jobwire.reliable import Fetched, Held, fetch, put_back, reclaim
from jobwire.worker.fetcher import Outcome
from jobwire.worker.outage import Outage
from jobwire.worker.settler import Settler
from jobwire.worker.wakeup import Wakeup

__all__ = ["Numbers", "ReliableFetcher"]

PREFETCH_SECONDS = 0.002  # how long a job may be expected to wait in the buffer
PREFETCH_LIMIT = 200
ASLEEP = 5.0  # seconds after which a job in the buffer may have been recovered by others
STALE = 0.05  # seconds after which a job that waits in the buffer goes back
SAFETY_NET = 15.0  # seconds between fetches even if no notice came
RECLAIM_EVERY = 1.0  # seconds between looks for what an unanswered fetch took

_log = logging.getLogger("jobwire.worker")


class Numbers:
    """Numbers that no two entries of a process share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 1

    def reserve(self, count: int) -> int:
        """Return the first of `count` fresh numbers."""
        with self._lock:
            first = self._next
            self._next += count
            return first


class ReliableFetcher:
    """The reliable `Fetcher` of one capsule.

    Args:
        redis: Where from.
        keys: Key names.
        identity: Whose private hash.
        order: The capsule's queues.
        threads: How many threads take from here.
        numbers: Shared by all capsules of the process.
        settler: Shared by all capsules of the process.
        renew_lease: Called when the process is found to have lost its lease. [REL-3]
    """

    def __init__(
        self,
        redis: SyncRedis,
        keys: Keys,
        identity: str,
        order: QueueOrder,
        *,
        threads: int,
        numbers: Numbers,
        settler: Settler,
        renew_lease: Callable[[], None],
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._identity = identity
        self._order = order
        self._threads = threads
        self._numbers = numbers
        self._settler = settler
        self._renew_lease = renew_lease
        self._closed = threading.Event()
        self._wakeup = Wakeup(redis.url, self._closed)
        self._outage = Outage("fetching", self._closed)
        self._turn = threading.Lock()
        self._buffer: deque[Held] = deque()
        self._filled_at = 0.0
        self._idle = 0
        self._idle_lock = threading.Lock()
        self._run_time = 1.0  # seconds; no prefetch until jobs have proved quick
        self._broken: set[str] = set()
        self._unanswered: list[tuple[float, range]] = []  # since when, numbers of the fetch
        self._reclaimed_at = 0.0
        settler.add_chore(self._give_back_stale)

    def take(self) -> Held | None:
        """Return the next job, waiting for one; None once closed. [FETCH-5]"""
        with self._idle_lock:
            self._idle += 1
        try:
            with self._turn:
                while not self._closed.is_set():
                    empty: Sequence[str] = ()
                    with self._outage:
                        if not self._buffer:
                            empty = self._fill()
                        elif time.monotonic() - self._filled_at < ASLEEP:
                            return self._buffer.popleft()
                        else:
                            # Paused for long: these may be others' by now. Only what is still
                            # held goes back.
                            self._give_back()
                    if empty:  # outside of the outage, which is over by now
                        patience = RECLAIM_EVERY if self._unanswered else SAFETY_NET
                        self._wakeup.wait(empty, patience)
                return None
        finally:
            with self._idle_lock:
                self._idle -= 1

    def settle(self, held: Held, outcome: Outcome, *, seconds: float) -> None:
        """Store the outcome of a job. Returns at once; the job stays held until it is stored."""
        self._run_time += 0.1 * (seconds - self._run_time)
        self._settler.add(held, outcome)

    def put_back(self, held: Sequence[Held]) -> int:
        """Return unfinished jobs to their queues; say how many were still ours. [SIG-5]"""
        fields = [each.field for each in held]
        return self._redis.run(put_back(self._keys, self._identity, fields, started=True))

    def close(self) -> None:
        """Take no more jobs, and return those that nobody has started."""
        self._closed.set()
        with self._turn:
            try:
                self._give_back()
            except RedisTrouble as error:
                # They stay held, and are recovered when this process is gone.
                _log.warning("%d prefetched jobs not returned: %s", len(self._buffer), error)
            self._wakeup.close()

    def _fill(self) -> Sequence[str]:
        """Fetch into the buffer; return the keys to wait for if they are all empty."""
        self._reclaim()
        queues = self._order.pick(random.shuffle)
        count = self._idle + self._prefetch()
        fetched = self._fetch(queues, count)
        self._report_broken(fetched.broken, whole=len(fetched.jobs) < count)
        if not fetched.lease:
            _log.warning("lease lost: this process was silent for too long; renewing it")
            self._renew_lease()
        elif fetched.jobs:
            self._buffer.extend(fetched.jobs)
            self._filled_at = time.monotonic()
            if len(fetched.jobs) > 1:
                self._settler.poke()
        else:
            usable = [self._keys.queue(name) for name in queues if name not in fetched.broken]
            if usable:
                return usable
            self._closed.wait(1.0)
        return ()

    def _fetch(self, queues: Sequence[str], count: int) -> Fetched:
        number = self._numbers.reserve(count)
        try:
            return self._redis.run(
                fetch(self._keys, self._identity, queues, count=count, sequence=number)
            )
        except NoReply:
            self._unanswered.append((time.monotonic(), range(number, number + count)))
            raise

    def _reclaim(self) -> None:
        """Return what unanswered fetches took: held in our name and known to nobody. [REL-8]

        Looked at for a while, since the server may get round to such a fetch later than to this.
        """
        now = time.monotonic()
        if not self._unanswered or now - self._reclaimed_at < RECLAIM_EVERY:
            return
        numbers = [each for _, each in self._unanswered]
        if count := self._redis.run(reclaim(self._keys, self._identity, numbers)):
            _log.warning("put back %d jobs of a fetch that got no answer", count)
        self._reclaimed_at = now
        self._unanswered = [each for each in self._unanswered if now - each[0] < LEASE]

    def _prefetch(self) -> int:
        """Return how many jobs to take beyond one for each idle thread."""
        jobs = PREFETCH_SECONDS / max(self._run_time, 1e-6)
        return min(int(jobs * self._threads), PREFETCH_LIMIT)

    def _give_back_stale(self) -> bool:
        """Return buffered jobs that wait behind long ones; say whether any are left to watch."""
        if not self._buffer:
            return False
        if time.monotonic() - self._filled_at > STALE and self._turn.acquire(blocking=False):
            try:
                self._run_time = max(self._run_time, PREFETCH_SECONDS * self._threads)
                self._give_back()
            except RedisTrouble as error:
                _log.warning("%d prefetched jobs not returned yet: %s", len(self._buffer), error)
            finally:
                self._turn.release()
        return bool(self._buffer)

    def _give_back(self) -> None:
        """Return all buffered jobs; they were never started. [FETCH-5]"""
        fields = [held.field for held in self._buffer]
        if fields:
            self._redis.run(put_back(self._keys, self._identity, fields, started=False))
            self._buffer.clear()

    def _report_broken(self, broken: Mapping[str, str], *, whole: bool) -> None:
        """Log a queue that cannot be read, once, by its name. [FETCH-7]

        A fetch that got all it wanted has not looked at the `whole` list of queues.
        """
        for queue, problem in broken.items():
            if queue not in self._broken:
                _log.error("queue %s cannot be read and is left out: %s", queue, problem)
        self._broken = set(broken) if whole else self._broken | set(broken)
