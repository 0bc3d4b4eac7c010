"""Reliable fetch. One idle thread, the leader, moves jobs into the private hash for all. [REL-1]

There is no fetching thread. The leader is one of the threads without a job: it fetches for itself
and for its followers, takes the first job and leaves the others in a buffer. So the thread that
runs a job is the one that waited for it. The leader keeps the lead while its jobs are so short that
waking another thread would cost more than they do, and resigns before a job that may take longer.
If a short job takes long after all, the ticker takes the lead away. While all slots are in use, one
more thread leads and fetches ahead, and a thread that finishes a job takes the next one from the
buffer. A leader that runs short jobs sends the next fetch before it needs the jobs, and reads the
reply when it does. Outcomes travel with the next fetch.

The leader's states are in `leader`, jobs fetched and not started in `buffer`, fetches sent and not
read in `inflight`, the rules of prefetching in `prefetch`.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial

from jobwire.connection.sync import SyncRedis
from jobwire.errors import NoReply, RedisTrouble
from jobwire.protocol.keys import Keys
from jobwire.protocol.ordering import QueueOrder
from jobwire.protocol.reliable import (
    Fetched,
    InFlightJob,
    put_back,
    read_fetched,
    reclaim,
    script_done,
    script_fetch,
)
from jobwire.protocol.times import utc_day
from jobwire.protocol.wire import Batch, Op, Script, once
from jobwire.text import counted
from jobwire.worker.base.outage import Outage
from jobwire.worker.base.ticker import PeriodicChecks
from jobwire.worker.base.timings import DEFAULT_TIMINGS, Timings
from jobwire.worker.fetch.buffer import Buffer, Slots
from jobwire.worker.fetch.doorbell import Doorbell, group_of
from jobwire.worker.fetch.inflight import FetchesInFlight, PendingFetch, SequenceNumbers
from jobwire.worker.fetch.job_source import SharedLead
from jobwire.worker.fetch.leader import Event, Leader, State
from jobwire.worker.fetch.other_pauses import OtherPauses
from jobwire.worker.fetch.prefetch import Prefetch
from jobwire.worker.fetch.wakeup import Wakeup
from jobwire.worker.outcome.outbox import Outbox

__all__ = ["ReliableFetcher"]

# Goes on while the machine is suspended, where the system has such a clock.
_CLOCK: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_now = time.clock_gettime
_log = logging.getLogger("jobwire.worker")


class ReliableFetcher:
    """The reliable `JobSource` of one capsule.

    Args:
        redis: Where the queues are.
        keys: Key names.
        identity: The process that owns the private hash.
        order: The capsule's queues.
        slots: How many jobs may run at a time.
        numbers: Shared by all capsules of the process.
        outbox: Shared by all capsules of the process.
        ticker: Shared by all capsules of the process.
        renew_lease: Called when the process is found to have lost its lease. [REL-3]
        other_pauses: Pauses of another product to honour; None for none. [KEY-6]
        timings: The lengths of the waits.
    """

    def __init__(
        self,
        redis: SyncRedis,
        keys: Keys,
        identity: str,
        order: QueueOrder,
        *,
        slots: int,
        numbers: SequenceNumbers,
        outbox: Outbox,
        ticker: PeriodicChecks,
        renew_lease: Callable[[], None],
        other_pauses: OtherPauses | None = None,
        timings: Timings = DEFAULT_TIMINGS,
    ) -> None:
        # A capsule for one job at a time gets one thread, and its jobs may rely on that.
        self.max_threads = slots + 1 if slots > 1 else 1
        self._redis = redis
        self._keys = keys
        self._identity = identity
        self._order = order
        self._numbers = numbers
        self._outbox = outbox
        self._ticker = ticker
        self._renew_lease = renew_lease
        self._other_pauses = other_pauses
        self._timings = timings
        self._stopping = threading.Event()  # for waits outside of the lock
        self._outage = Outage("fetching", self._stopping, pause=timings.longest_outage_pause)
        self._wakeup = Wakeup(redis.url, self._stopping, timings)  # used by the leader only
        self._in_flight = FetchesInFlight(  # has a lock of its own, taken after `_lock`
            reclaim_interval=timings.reclaim_interval, reclaim_for=timings.reclaim_for
        )
        self._request_thread: Callable[[], None] | None = None  # set before the first `take`

        # Changed without a lock, because each operation on a set of strings is atomic.
        self._in_hand: set[str] = set()  # fields of jobs between buffer and thread, or going back
        self._maybe_returned: set[str] = set()  # fields of a put back that got no reply
        # Guards `_leader`, `_slots`, `_buffer`, `_followers`, `_prefetch`, `_broken`.
        self._lock = threading.Lock()
        self._lead_free = threading.Condition(self._lock)  # for followers
        self._unblocked = threading.Condition(self._lock)  # for a blocked leader
        self._leader = Leader()  # guarded by `_lock`
        self._slots = Slots(slots)  # guarded by `_lock`
        self._buffer = Buffer(self._slots, lifetime=timings.buffer_lifetime)  # guarded by `_lock`
        self._followers = 0  # guarded by `_lock`
        self._prefetch = Prefetch(slots, timings)  # guarded by `_lock`
        self._broken: set[str] = set()  # queues in the log; guarded by `_lock`
        self._steps = 0  # of the leaders; written by the leader only
        ticker.add_periodic_check(self._check)

    @property
    def lead(self) -> SharedLead:
        """The threads of this source share one leader."""
        return self

    @property
    def fetches(self) -> int:
        """Number of fetches that were sent to Redis."""
        return self._in_flight.begun

    def look(self) -> Op[None]:
        """Look for jobs while the leader waits; for a message that is sent in any case."""
        return self._wakeup.look()

    def step(self) -> int | None:
        """Return the number of fetches and waits; None while no thread has to fetch or wait."""
        return self._steps if self._leader.active else None

    def on_thread_wanted(self, start: Callable[[], None]) -> None:
        """Have `start` called when there is no thread to take the lead."""
        self._request_thread = start

    def take(self, ran: float | None) -> InFlightJob | None:
        """Return the next job, waiting for one; None once closed. [FETCH-5]"""
        me = threading.get_ident()
        leader = self._leader
        ahead = 0
        with self._lock:
            if ran is not None:
                self._slots.release()
                self._prefetch.ran(ran)
            if leader.thread != me:
                held = self._take_as_follower()
                if held is not None:
                    return held
                if ran is not None and leader.state is State.BLOCKED:
                    self._unblocked.notify()
                led = self._follow(me)
            else:
                led = True
            held = None
            if led:
                now = _now(_CLOCK)
                held = self._buffer.take(now)
                if held is not None:
                    leader.start(now)
                    if not self._in_flight.any_pending and self._ticker.awake:
                        ahead = self._prefetch.wanted_ahead(len(self._buffer))
                elif leader.state is State.RUNNING_SHORT:
                    leader.step(Event.RETURN)
        if held is None:
            held = self._lead() if led else None
            if held is None:
                self._ticker.wake()  # no fetch will come for the last outcomes
        elif ahead:
            self._in_hand.add(held.field)
            try:
                self._send_prefetch(ahead)
            finally:
                self._in_hand.discard(held.field)
        return held

    def starting(self, expected: float) -> None:
        """Keep or give up the lead for a job that this thread expects to run for so many seconds.

        A leader keeps the lead only while the ticker can take it away: `take` has started the job
        under the lock that `_check` takes, so a ticker that falls asleep now sees it.
        """
        if self._ticker.awake and self._prefetch.keeps_lead(expected):
            return
        with self._lock:
            wants_thread = self._leader.thread == threading.get_ident() and self._resign()
        if wants_thread:
            self._start_thread()

    def release(self, ran: float) -> None:
        """Free the slot of a job that ran for so many seconds outside of the fetching threads."""
        with self._lock:
            self._slots.release()
            self._prefetch.ran(ran)
            if self._leader.state is State.BLOCKED:
                self._unblocked.notify()

    def open_numbers(self) -> list[range]:
        """Return the numbers of jobs that may still arrive here. To be called before `waiting`."""
        return self._in_flight.open_numbers()

    def waiting(self) -> list[str]:
        """Return the fields of the jobs that `take` has not returned yet."""
        with self._lock:
            return [*(held.field for held in self._buffer.jobs()), *self._in_hand.copy()]

    def acknowledge(self, held: InFlightJob) -> bool:
        """End a job in Redis before it runs; return whether this process still had it. [REL-2]"""
        day = utc_day(time.time())
        step = script_done(self._keys, self._identity, [held.field], failed=False, day=day)
        gone: Sequence[bytes] = self._redis.run(once(step))
        return not gone

    def put_back(self, jobs: Sequence[InFlightJob]) -> int:
        """Return unfinished jobs to their queues; return how many were still held. [SIG-5]"""
        fields = [held.field for held in jobs]
        again = [field for field in fields if field in self._maybe_returned]
        new = [field for field in fields if field not in self._maybe_returned]
        return self._return(again, repeated=True) + self._return(new, repeated=False)

    def close(self) -> None:
        """Take no more jobs, and return those that have not started."""
        self._stopping.set()
        with self._lock:
            leader_closes = self._leader.close()
            self._lead_free.notify_all()
            self._unblocked.notify_all()
        if not leader_closes:
            self._leave()
        self._return_unstarted()

    def _return(self, fields: Sequence[str], *, repeated: bool) -> int:
        """Return unfinished jobs, and remember them if no reply comes. [REL-23]"""
        step = put_back(
            *(self._keys, self._identity, fields),
            started=True,
            now=time.time(),
            repeated=repeated,
        )
        try:
            count = self._redis.run(step)
        except NoReply:
            self._maybe_returned.update(fields)
            raise
        self._maybe_returned.difference_update(fields)
        return count

    # -- with the lock held

    def _take_as_follower(self) -> InFlightJob | None:
        """Take a job from the buffer while the leader fetches or waits.

        Not while the leader runs short jobs: followers would only slow it down.
        """
        if not self._leader.active:
            return None
        held = self._buffer.take(_now(_CLOCK))
        if held is not None and not self._buffer and self._leader.state is State.BLOCKED:
            self._unblocked.notify()  # to fetch ahead again
        return held

    def _follow(self, me: int) -> bool:
        """Wait for the lead; return False once closed."""
        leader = self._leader
        if leader.thread is not None and self._outbox.pending:
            self._ticker.wake()
        self._followers += 1
        try:
            while leader.state is not State.IDLE and leader.state is not State.CLOSED:
                self._lead_free.wait()
        finally:
            self._followers -= 1
        if leader.state is State.CLOSED:
            return False
        leader.elect(me)
        return True

    def _resign(self) -> bool:
        """Take the lead from the thread that runs a job; return True if no follower waits."""
        self._leader.resign()
        self._lead_free.notify()
        return not self._followers

    # -- as the leader, without the lock

    def _lead(self) -> InFlightJob | None:
        """Fetch and wait until there is a job for this thread; None once closed."""
        while True:
            self._steps += 1
            with self._outage:
                self._fetch_or_wait()
            with self._lock:
                if self._leader.state is State.CLOSED:
                    break
                now = _now(_CLOCK)
                held = self._buffer.take(now)
                if held is not None:
                    self._leader.start(now)
                    return held
        self._leave()
        self._return_unstarted()
        return None

    def _fetch_or_wait(self) -> None:
        """Fetch into the buffer, or wait until there is something to fetch."""
        with self._lock:
            if self._leader.state is State.CLOSED:
                return
            pending = self._in_flight.take()
            free = self._slots.total - self._slots.in_use
            wanted = self._prefetch.wanted(busy=self._slots.in_use, buffered=len(self._buffer) > 0)
            if pending is None and not wanted:
                if self._outbox.pending:
                    self._ticker.wake()
                self._leader.step(Event.BLOCK)
                self._unblocked.wait(self._timings.fetch_safety_interval)
                self._leader.step(Event.UNBLOCK)
                return
            old = len(self._buffer) > 0
            self._leader.step(Event.FETCH)
        try:
            if pending is None:
                if old:
                    # After a long pause other processes may own these jobs. The others go back.
                    self._give_back()
                self._reclaim()
                pending = self._send(wanted, ahead=False)
            fetched = self._collect(pending)
        finally:
            with self._lock:
                self._leader.step(Event.FETCHED)
        self._wakeup.fetched(len(fetched.jobs), wanted=len(pending.numbers), free=free)
        if fetched.jobs:
            if len(fetched.jobs) > 1 or not free:
                self._ticker.wake()
        elif free and fetched.lease:
            self._wait(wanted, pending.queues, fetched.broken, fetched.paused)

    def _wait(
        self,
        wanted: int,
        queues: Sequence[str],
        broken: Mapping[str, str],
        paused: Collection[str],
    ) -> None:
        """Wait for a push to a queue that can be used, or for one to be resumed.

        The next fetch is prepared before, so that it can be sent right after the notice.
        """
        usable = [
            self._keys.queue(name) for name in queues if name not in broken and name not in paused
        ]
        timings = self._timings
        patience = timings.fetch_safety_interval
        if self._in_flight.any_unanswered:
            patience = timings.reclaim_interval
        if broken:  # nothing tells when such a key is a list again [FETCH-11]
            patience = timings.unusable_queues_pause
        numbers, order, script = self._next_fetch(wanted, anew=True)
        send = self._redis.prepare(once(script))

        def noticed() -> None:
            if self._stopping.is_set():
                return  # a job that is pushed after `close` stays in its queue
            self._in_flight.begin(numbers)
            self._in_flight.add(PendingFetch(order, numbers, _now(_CLOCK), False, send()))

        changes = [self._keys.paused] if paused else []
        if self._other_pauses is not None:
            changes.append(self._other_pauses.key)  # so that the fetch that is prepared is right
        # Also after a wait without notice: a pause may have ended since it was read.
        fetches = patience < timings.fetch_safety_interval or bool(changes)
        with self._lock:
            if self._leader.state is State.CLOSED:
                return
            in_use = self._slots.in_use
            self._leader.step(Event.WAIT)
        group = group_of(self._order.weights)
        bell = Doorbell(self._keys, self._identity, group)
        wait = partial(
            self._wakeup.wait, usable, patience, noticed=noticed, changes=changes, bell=bell
        )
        try:
            # The fetch that is prepared is right for as many jobs as run now.
            while not (wait(busy=in_use > 0) or fetches or self._slots.in_use != in_use):
                self._steps += 1
        finally:
            with self._lock:
                self._leader.step(Event.NOTICED)

    def _send(self, count: int, *, ahead: bool) -> PendingFetch:
        """Send a fetch together with the pending outcomes."""
        numbers, queues, script = self._next_fetch(count)
        sent_at = _now(_CLOCK)
        self._in_flight.begin(numbers)
        try:
            reply = self._outbox.send_with(script)
        except BaseException:
            self._in_flight.end(numbers)
            raise
        return PendingFetch(queues, numbers, sent_at, ahead, reply)

    def _next_fetch(self, count: int, *, anew: bool = False) -> tuple[range, Sequence[str], Script]:
        """Return the numbers that its jobs will have, the queues it looks at, and the call."""
        numbers = self._numbers.reserve(count)
        queues = self._order.pick(random.shuffle)
        if self._other_pauses is not None:
            paused = self._other_pauses.names(anew=anew)
            queues = [name for name in queues if name not in paused]
        script = script_fetch(
            self._keys, self._identity, queues, count=count, sequence=numbers.start
        )
        return numbers, queues, script

    def _send_prefetch(self, count: int) -> None:
        """Send a fetch whose reply is read when the buffer is empty."""
        self._in_flight.add(self._send(count, ahead=True))
        if self._stopping.is_set():
            self._return_unstarted()

    def _reclaim(self) -> None:
        """Return the jobs of unanswered fetches, which are held and known to no thread. [REL-8]"""
        now = time.monotonic()
        numbers = self._in_flight.to_reclaim(now)
        if not numbers:
            return
        if count := self._redis.run(reclaim(self._keys, self._identity, numbers)):
            _log.warning("put back %s of a fetch that got no reply", counted(count, "job"))
        self._in_flight.reclaimed(now)

    # -- by any thread, without the lock

    def _check(self) -> float | None:
        """Take the lead from a leader that is busy, and jobs that wait too long. For the ticker."""
        with self._lock:
            now = _now(_CLOCK)
            ran = self._leader.runs_since(now)
            wants_thread = ran is not None and ran > self._timings.tick and self._resign()
            ages = (self._buffer.age(now), self._in_flight.age(now))
        if wants_thread:
            self._start_thread()
        if any(age is not None and self._prefetch.goes_back(age) for age in ages):
            try:
                self._give_back()
            except RedisTrouble as error:
                _log.warning("prefetched jobs not returned yet: %s", error)
            with self._lock:
                # All threads are busy with long jobs. Must come last: reading a reply above
                # resets this.
                self._prefetch.went_back()
        with self._lock:
            # Short jobs let no other thread run Python, so that this may see only their fetches.
            active = (
                len(self._buffer) > 0
                or self._in_flight.any_pending
                or self._leader.state in (State.RUNNING_SHORT, State.FETCHING)
            )
        return self._timings.tick if active else None

    def _start_thread(self) -> None:
        if self._request_thread is not None and not self._stopping.is_set():
            self._request_thread()

    def _collect(self, fetch: PendingFetch) -> Fetched:
        """Read the reply to a fetch, and put its jobs into the buffer."""
        try:
            return self._put_into_buffer(fetch)
        except NoReply:
            self._in_flight.lost([fetch.numbers], time.monotonic())
            raise
        finally:
            self._in_flight.end(fetch.numbers)

    def _put_into_buffer(self, fetch: PendingFetch) -> Fetched:
        fetched = read_fetched(fetch.reply())
        now = _now(_CLOCK)
        wanted, took = len(fetch.numbers), now - fetch.sent_at
        # A reply that was read late is as old as its request.
        late = fetch.ahead or took >= self._timings.buffer_lifetime
        with self._lock:
            self._prefetch.got(len(fetched.jobs), wanted=wanted, seconds=took)
            self._buffer.add(fetched.jobs, fetched_at=fetch.sent_at if late else now)
            # A fetch that got all it wanted has not looked at all queues.
            known, whole = self._broken, len(fetched.jobs) < wanted
            self._broken = set(fetched.broken) | (set() if whole else known)
        for queue, problem in fetched.broken.items():  # once, by its name [FETCH-7]
            if queue not in known:
                _log.error("queue %s cannot be read and is left out: %s", queue, problem)
        if not fetched.lease:
            _log.warning("lease lost: this process was silent for too long; renewing it")
            self._renew_lease()
        self._outage.over()  # now, because a wait for a push may follow
        return fetched

    def _leave(self) -> None:
        """Let another process watch the queues; a ring that came just now is passed on. [REL-30]"""
        if steps := self._wakeup.leave():
            with suppress(RedisTrouble):  # a guard that ends without this is replaced in time
                self._redis.run(once(Batch(steps)))

    def _return_unstarted(self) -> None:
        """Return jobs that have not started, as far as Redis can be used."""
        try:
            self._give_back()
        except RedisTrouble as error:
            # The jobs stay held, and are recovered when this process is gone.
            _log.warning("prefetched jobs not returned: %s", error)

    def _give_back(self) -> None:
        """Return all jobs that were fetched, or are being fetched, and never started. [FETCH-5]"""
        while (fetch := self._in_flight.take()) is not None:
            with suppress(RedisTrouble):  # the fetch took no jobs, or they are reclaimed
                self._collect(fetch)
        with self._lock:
            fields = [held.field for held in self._buffer.clear()]
            self._in_hand.update(fields)
        if not fields:
            return
        try:
            self._redis.run(put_back(self._keys, self._identity, fields, started=False))
        except RedisTrouble:
            # Perhaps done, perhaps not. The jobs are not run: those still held are reclaimed.
            numbers = [int(field.partition(":")[0]) for field in fields]
            self._in_flight.lost([range(n, n + 1) for n in numbers], time.monotonic())
            raise
        finally:
            self._in_hand.difference_update(fields)
