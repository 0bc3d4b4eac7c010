"""Reliable fetch: batches into the private hash, whoever is idle fetches for all. [REL-1]

There is no fetching thread. Of the threads without a job one has the turn: it fetches for itself
and for the others, takes the first job and leaves the rest in a buffer. So the thread that runs a
job is the one that waited for it. It keeps the turn while its jobs are so quick that waking another
thread would cost more than they do, and passes it on before a job that may take longer; should a
quick one turn out long, the settler's thread takes the turn away. While all slots are in use, one
more thread has the turn and fetches ahead, and who has run a job helps itself to the next. Who
runs quick jobs asks for more before it needs them, and reads the answer when it does. Outcomes
travel with the next fetch.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from jobwire.connection.sync import SyncRedis
from jobwire.errors import NoReply, RedisTrouble
from jobwire.protocol.heartbeat import LEASE
from jobwire.protocol.keys import Keys
from jobwire.protocol.ordering import QueueOrder
from jobwire.protocol.reliable import (
    Fetched,
    InFlightJob,
    put_back,
    read_fetched,
    reclaim,
    script_fetch,
)
from jobwire.protocol.wire import Script, once
from jobwire.worker.background.outcome_writer import TICK, Settler
from jobwire.worker.fetch.outage import Outage
from jobwire.worker.fetch.prefetch import Prefetch
from jobwire.worker.fetch.source import Outcome
from jobwire.worker.fetch.wakeup import Wakeup

__all__ = ["Numbers", "ReliableFetcher"]

ASLEEP = 5.0  # seconds after which a job in the buffer may have been recovered by others
SAFETY_NET = 15.0  # seconds between fetches even if no notice came
RECLAIM_EVERY = 1.0  # seconds between looks for what an unanswered fetch took

_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_log = logging.getLogger("jobwire.worker")


def _waking() -> float:
    """Return seconds that go on while the machine is suspended, where the system has such."""
    return time.clock_gettime(_CLOCK)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A fetch under way: its jobs are held, and not known yet."""

    queues: Sequence[str]
    numbers: range  # as many as jobs were asked for
    at: float  # of `_waking`
    ahead: bool  # while there are jobs to run, so that nobody waits for it
    reply: Callable[[], Any]


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
        slots: How many jobs may run at a time.
        numbers: Shared by all capsules of the process.
        settler: Shared by all capsules of the process.
        renew_lease: Called when the process is found to have lost its lease. [REL-3]
    """

    needs_all_threads = False

    def __init__(
        self,
        redis: SyncRedis,
        keys: Keys,
        identity: str,
        order: QueueOrder,
        *,
        slots: int,
        numbers: Numbers,
        settler: Settler,
        renew_lease: Callable[[], None],
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._identity = identity
        self._order = order
        self._slots = slots
        # A capsule for one job at a time gets one thread, so that its jobs may rely on that.
        self.most_threads = slots + 1 if slots > 1 else 1
        self._numbers = numbers
        self._settler = settler
        self._renew_lease = renew_lease
        self._closed = threading.Event()
        self._wakeup = Wakeup(redis.url, self._closed)
        self._outage = Outage("fetching", self._closed)
        lock = threading.Lock()  # over everything from here to the blank line
        self._turn_passed = threading.Condition(lock)
        self._leader_wanted = threading.Condition(lock)
        self._lock = lock
        self._leader: int | None = None  # the thread that has the turn
        self._leader_runs_since = 0.0  # of `_waking`; 0: it does not run a job
        self._buffer: deque[InFlightJob] = deque()
        self._filled_at = 0.0  # of `_waking`
        self._busy = 0

        self._asked: deque[_Asked] = deque()  # whose answers nobody has begun to read
        self._asked_at = 0.0  # of `_waking`, the last of them
        self._fetching = False
        self._followers = 0
        self._call_help: Callable[[], None] = lambda: None
        self._prefetch = Prefetch(slots)
        self._broken: set[str] = set()
        self._unanswered: list[tuple[float, range]] = []  # since when, numbers of the fetch
        self._reclaimed_at = 0.0
        settler.add_chore(self._look_after)

    def on_help_wanted(self, call: Callable[[], None]) -> None:
        """Have `call` called when there is no thread to pass the turn to."""
        self._call_help = call

    def take(self, over: bool) -> InFlightJob | None:
        """Return the next job, waiting for one; None once closed. [FETCH-5]"""
        held = self._take(over)
        if held is None:
            self._settler.poke()  # no fetch will come for the last outcomes
        return held

    def _take(self, over: bool) -> InFlightJob | None:
        me = threading.get_ident()
        with self._lock:
            self._busy -= over
            if self._leader != me:
                held = self._pop_beside()
                if held is not None:
                    return held
                if over:
                    self._tell_freed()
                if not self._follow(me):
                    return None
            held = self._pop()
            meanwhile = 0 if held is None else self._wanted_meanwhile()
        if held is not None:
            if meanwhile:
                self._ask_ahead(meanwhile)
            return held
        while not self._closed.is_set():
            with self._outage:
                self._fill()
            with self._lock:
                held = self._pop()
            if held is not None:
                return held
        self._wakeup.close()
        self._return_all()
        self._pass_turn(me)
        return None

    def running(self, seconds: float) -> None:
        """The thread that just took a job expects to be busy with it for so long."""
        if self._prefetch.keeps_turn(seconds) and self._settler.watching:
            return
        me = threading.get_ident()
        if self._leader == me:
            self._pass_turn(me)

    def free(self) -> None:
        """A job that was taken is over, and the thread that ran it does not come for another."""
        with self._lock:
            self._busy -= 1
            self._tell_freed()

    def settle(self, held: InFlightJob, outcome: Outcome, *, seconds: float) -> None:
        """Store the outcome of a job. Returns at once; the job stays held until it is stored."""
        self._prefetch.ran(seconds)
        self._settler.add(held, outcome)

    def hurry(self) -> None:
        """See to it that settled outcomes are stored soon, though no fetch may come."""
        self._settler.poke()

    def store(self, held: InFlightJob, outcome: Outcome, *, seconds: float) -> bool:
        """Store the outcome of a job and wait for it; return whether the job was still ours."""
        self._prefetch.ran(seconds)
        return self._settler.store(held, outcome)

    def put_back(self, held: Sequence[InFlightJob]) -> int:
        """Return unfinished jobs to their queues; say how many were still ours. [SIG-5]"""
        fields = [each.field for each in held]
        return self._redis.run(
            put_back(self._keys, self._identity, fields, started=True, now=time.time())
        )

    def close(self) -> None:
        """Take no more jobs, and return those that nobody has started."""
        self._closed.set()
        with self._lock:
            waiting = self._leader is not None and not self._leader_runs_since
            self._turn_passed.notify_all()
            self._leader_wanted.notify_all()
        if not waiting:  # else the leader closes it, whose it is
            self._wakeup.close()
        self._return_all()

    # -- the turn; with the lock held

    def _pop(self) -> InFlightJob | None:
        """Take a job from the buffer, as who has the turn."""
        now = _waking()
        if not self._startable(now):
            self._leader_runs_since = 0.0
            return None
        self._leader_runs_since = now
        self._busy += 1
        return self._buffer.popleft()

    def _pop_beside(self) -> InFlightJob | None:
        """Take a job from the buffer while who has the turn waits for a slot to be free.

        Not while it runs quick jobs: the others would rather wait than get into its way.
        """
        if self._leader is None or self._leader_runs_since:
            return None
        if not self._startable(_waking()):
            return None
        self._busy += 1
        held = self._buffer.popleft()
        if not self._buffer:
            self._leader_wanted.notify()  # to fetch ahead again
        return held

    def _wanted_meanwhile(self) -> int:
        """Return how many jobs to ask for while quick ones run; only where the settler watches."""
        if self._asked or not self._settler.watching:
            return 0
        return self._prefetch.wanted_meanwhile(len(self._buffer))

    def _startable(self, now: float) -> bool:
        """Whether there is a job in the buffer, it is fresh, and a slot is free."""
        return (
            bool(self._buffer)
            and self._busy < self._slots
            and now - self._filled_at < ASLEEP
            and not self._closed.is_set()
        )

    def _tell_freed(self) -> None:
        """One slot more is free."""
        if self._busy == self._slots - 1:
            self._leader_wanted.notify()

    def _follow(self, me: int) -> bool:
        """Wait for the turn; return False once closed."""
        if self._leader is not None and self._settler.pending:
            self._settler.poke()
        self._followers += 1
        try:
            while self._leader is not None and not self._closed.is_set():
                self._turn_passed.wait()
        finally:
            self._followers -= 1
        if self._closed.is_set():
            return False
        self._leader = me
        self._leader_runs_since = 0.0
        return True

    # -- the turn; without the lock

    def _pass_turn(self, leader: int) -> None:
        """Let another thread lead, if this one still does."""
        with self._lock:
            if self._leader != leader:
                return
            self._leader = None
            self._leader_runs_since = 0.0
            alone = not self._followers
            self._turn_passed.notify()
        if alone and not self._closed.is_set():
            self._call_help()

    def _look_after(self) -> float | None:
        """Take the turn from who is busy, and jobs from the buffer that wait too long."""
        leader, since, now = self._leader, self._leader_runs_since, _waking()
        if leader is not None and since and now - since > TICK:
            with self._lock:
                stuck = self._leader == leader and self._leader_runs_since == since
            if stuck:
                self._pass_turn(leader)
        if (self._buffer and self._prefetch.goes_back(now - self._filled_at)) or (
            self._asked and self._prefetch.goes_back(now - self._asked_at)
        ):
            try:
                self._give_back()
            except RedisTrouble as error:
                _log.warning("prefetched jobs not returned yet: %s", error)
            # All threads are busy with long jobs. Last, for an answer may have been read above.
            self._prefetch.went_back()
        # Quick jobs let nobody else run Python, so that this may see nothing but their fetches.
        active = self._buffer or self._leader_runs_since or self._fetching or self._asked
        return TICK if active else None

    # -- fetching; only who has the turn

    def _fill(self) -> None:
        """Fetch into the buffer, or wait for there to be something to fetch."""
        with self._lock:
            asked = self._next_asked()
            free = self._busy < self._slots
            wanted = self._prefetch.wanted(busy=self._busy, buffered=bool(self._buffer))
            if asked is None and not wanted:
                if self._settler.pending:
                    self._settler.poke()
                self._leader_wanted.wait(SAFETY_NET)
                return
            old = bool(self._buffer)
        self._fetching = True
        try:
            if asked is None:
                if old:
                    # Paused for long: these may be others' by now. What is still held goes back.
                    self._give_back()
                self._reclaim()
                asked = self._ask(wanted, ahead=False)
            fetched = self._stock(asked)
        finally:
            self._fetching = False
        if fetched.jobs:
            if len(fetched.jobs) > 1 or not free:
                self._settler.poke()
        elif free and fetched.lease:
            self._wait(wanted, asked.queues, fetched.broken, fetched.paused)

    def _ask(self, count: int, *, ahead: bool) -> _Asked:
        """Send a fetch, and with it what outcomes there are."""
        numbers, queues, script = self._next_fetch(count)
        at = _waking()
        return _Asked(queues, numbers, at, ahead, self._settler.send_with(script))

    def _next_fetch(self, count: int) -> tuple[range, Sequence[str], Script]:
        """Return the numbers that its jobs will have, the queues it looks at, and the call."""
        first = self._numbers.reserve(count)
        queues = self._order.pick(random.shuffle)
        script = script_fetch(self._keys, self._identity, queues, count=count, sequence=first)
        return range(first, first + count), queues, script

    def _ask_ahead(self, count: int) -> None:
        """Send a fetch whose answer is read when the buffer is empty."""
        self._expect(self._ask(count, ahead=True))
        if self._closed.is_set():
            self._return_all()

    def _expect(self, asked: _Asked) -> None:
        """Have an answer read later, by whoever needs it first."""
        self._asked_at = asked.at
        self._asked.append(asked)

    def _next_asked(self) -> _Asked | None:
        """Return what was asked first and not read, to read it now."""
        try:
            return self._asked.popleft()
        except IndexError:
            return None

    def _stock(self, asked: _Asked) -> Fetched:
        """Read the answer to a fetch, and put its jobs into the buffer."""
        try:
            fetched = read_fetched(asked.reply())
        except NoReply:
            self._unanswered.append((time.monotonic(), asked.numbers))
            raise
        now = _waking()
        wanted, took = len(asked.numbers), now - asked.at
        self._prefetch.got(len(fetched.jobs), wanted=wanted, seconds=took)
        self._report_broken(fetched.broken, whole=len(fetched.jobs) < wanted)
        if not fetched.lease:
            _log.warning("lease lost: this process was silent for too long; renewing it")
            self._renew_lease()
        with self._lock:
            if not self._buffer:
                # An answer that was read late is as old as the question.
                self._filled_at = asked.at if asked.ahead or took >= ASLEEP else now
            self._buffer.extend(fetched.jobs)
        return fetched

    def _wait(
        self,
        wanted: int,
        queues: Sequence[str],
        broken: Mapping[str, str],
        paused: Collection[str],
    ) -> None:
        """Wait for a push to a queue that can be used, or for one to be resumed.

        The next fetch is made ready before, so that it can go out right behind the notice.
        """
        usable = [
            self._keys.queue(name) for name in queues if name not in broken and name not in paused
        ]
        patience = RECLAIM_EVERY if self._unanswered else SAFETY_NET
        if broken and not usable:
            patience = 1.0
        numbers, order, script = self._next_fetch(wanted)
        send = self._redis.prepare(once(script))

        def noticed() -> None:
            self._expect(_Asked(order, numbers, _waking(), False, send()))

        changes = [self._keys.paused] if paused else ()
        self._wakeup.wait(usable, patience, noticed=noticed, changes=changes)

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

    def _return_all(self) -> None:
        """Return what nobody has started, as far as Redis can be used."""
        try:
            self._give_back()
        except RedisTrouble as error:
            # They stay held, and are recovered when this process is gone.
            _log.warning("prefetched jobs not returned: %s", error)

    def _give_back(self) -> None:
        """Return all jobs that were fetched, or are being so, and never started. [FETCH-5]"""
        while (asked := self._next_asked()) is not None:
            with suppress(RedisTrouble):  # it took nothing, or what it took is reclaimed
                self._stock(asked)
        with self._lock:
            jobs = list(self._buffer)
            self._buffer.clear()
        if not jobs:
            return
        fields = [held.field for held in jobs]
        try:
            self._redis.run(put_back(self._keys, self._identity, fields, started=False))
        except RedisTrouble:
            # Perhaps done, perhaps not. They are not run: what is still held is reclaimed.
            numbers = [int(field.partition(":")[0]) for field in fields]
            with self._lock:
                self._unanswered += [(time.monotonic(), range(n, n + 1)) for n in numbers]
            raise

    def _report_broken(self, broken: Mapping[str, str], *, whole: bool) -> None:
        """Log a queue that cannot be read, once, by its name. [FETCH-7]

        A fetch that got all it wanted has not looked at the `whole` list of queues.
        """
        for queue, problem in broken.items():
            if queue not in self._broken:
                _log.error("queue %s cannot be read and is left out: %s", queue, problem)
        self._broken = set(broken) if whole else self._broken | set(broken)
