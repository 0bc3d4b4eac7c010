"""The wait of an idle worker for a push, without taking jobs and without polling. [REL-1] [REL-30]

A blocking pop would hold a job in a reply that may never arrive. Instead, one connection has the
server track the queues. A server or proxy without tracking is polled.

If every idle process did so, each push would wake all of them. So two guards watch for all
processes that serve the same queues, and the others wait at their doorbell. A guard passes its
place on while it runs a job, so that the jobs spread over the processes.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from jobwire.connection.watch import Watch
from jobwire.errors import RedisRefused, RedisTrouble
from jobwire.protocol.wire import Arg, Batch, Command, ErrorReply, Op, command
from jobwire.worker.base.timings import DEFAULT_TIMINGS, Timings
from jobwire.worker.fetch.doorbell import PLACES, RENEW_AFTER_S, Doorbell

__all__ = ["Wakeup"]

YOUNG_S = 60.0  # in which a process that has started looks for places of dead ones
LATEST_LOOK_S = 14.0  # after which a guard looks by itself, because no heartbeat has
ALONE_S = 60.0  # for which a process watches by itself after the server refused the doorbell


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
        # The queues and other keys of which notices come; None while no thread relies on them.
        self._armed: tuple[tuple[str, ...], tuple[str, ...]] | None = None
        self._looked_at = 0.0  # monotonic; of the last look, also one with a heartbeat
        self._bell: Doorbell | None = None  # of the last wait
        self._place: str | None = None  # that this process has as a guard
        self._renewed_at = 0.0  # monotonic time; 0 if another process may have the place
        self._woken = False  # True from the end of a wait to the next fetch
        self._unrung = False  # True after a wait at the doorbell without a ring
        self._rung = False  # True from a ring until this process watches, or rings itself
        self._alone_until = 0.0  # monotonic time
        self._young_until = time.monotonic() + YOUNG_S

    def wait(
        self,
        queue_keys: Sequence[str],
        timeout: float,
        *,
        noticed: Callable[[], None],
        changes: Sequence[str] = (),
        bell: Doorbell | None = None,
        busy: bool = False,
    ) -> bool:
        """Return when one of the lists may have jobs, or after `timeout` seconds. [FETCH-10]

        The result is False if this process has watched for all that time and no notice came, or
        no ring. The next wait then asks the server whether the lists are still empty, unless `look`
        does, so no fetch is needed.

        Also return when one of the keys in `changes` is written to, with any value. The first wait
        for a change returns at once: the write may have come since the caller read it. [REL-9]

        Args:
            queue_keys: The lists.
            timeout: Seconds.
            noticed: Called at once when a notice or a ring has come.
            changes: The other keys.
            bell: The doorbell of the processes with the same lists; None to watch in any case.
            busy: True if this process runs jobs, so that an idle one shall be the guard.
        """
        if not self._watch.tracking:
            self._stop.wait(min(self._poll_interval, timeout))
            return True
        now = time.monotonic()
        deadline = now + timeout
        try:
            if bell is not None and now >= self._alone_until:
                try:
                    if not self._guards(bell, queue_keys, deadline, busy=busy, noticed=noticed):
                        return not self._waits_with_claim(busy)
                except RedisRefused:
                    if not self._watch.tracking:
                        raise
                    # A server that is full, or rules from before the doorbell. [ENV-9]
                    self.close()
                    self._place = None
                    self._alone_until = time.monotonic() + ALONE_S
            wanted = tuple(queue_keys), tuple(changes)
            armed = self._armed == wanted and now < self._looked_at + LATEST_LOOK_S
            quiet = armed or not self._something(queue_keys, changes)
            if quiet:
                self._armed = self._armed if armed else wanted
                self._await(deadline)
                if self._watch.noticed:
                    quiet, self._armed = False, None
                    noticed()
                if not self._watch.noticed.isdisjoint(self._watched):
                    self._watched = frozenset()
            self._woken = True
            return not quiet or self._stop.is_set()
        except RedisRefused:
            self._watch.tracking = False  # the next wait polls
            self.close()
        except RedisTrouble:
            # The fetch that follows meets the same trouble and reports it.
            self.close()
            self._woken = self._rung = True  # a ring may have been lost with the connection
            self._stop.wait(self._poll_interval)
        return True

    def look(self) -> Op[None]:
        """Look for the waiting thread, and renew its place; for a message that is sent in any case.

        That thread wakes up if there are jobs, of which the notice was lost, or if its place is.
        """
        armed, bell, place = self._armed, self._bell, self._place
        if armed is None:
            return
        renewal = bell.renew(place) if bell is not None and place is not None else []
        look = [command("EXISTS", *armed[0])] if armed[0] else []
        now = time.monotonic()
        replies = yield Batch([*renewal, *look])
        if self._armed is not armed or any(isinstance(reply, ErrorReply) for reply in replies):
            return  # after an error the thread looks by itself
        lost = bool(renewal) and bell is not None and not bell.has(replies[0])
        self._looked_at, self._renewed_at = now, 0.0 if lost else now
        if lost or (look and replies[-1]):
            self._watch.wake()

    def fetched(self, jobs: int, *, wanted: int, free: int) -> None:
        """Wake others after a fetch that leaves them jobs, or leaves no thread to watch.

        Args:
            jobs: How many the fetch has brought.
            wanted: How many it asked for.
            free: How many could start at once.
        """
        woken, rung, bell, place = self._woken, self._rung, self._bell, self._place
        self._woken = False
        must = rung or place is not None  # others rely on this process
        if bell is None or jobs < free or not (must or (woken and jobs >= wanted)):
            return
        self._place, self._rung = None, False
        # A guard with its only job does not know of more, and one process has to take its place.
        # Two rings double the processes that fetch, so that all of them fetch soon.
        rings = bell.ring(2 if jobs > 1 or rung else 1, place)
        try:
            self._watch.tell([step.args for step in rings])
        except RedisTrouble:
            self.close()

    def leave(self) -> list[Command]:
        """Close the connection; return the commands that let another process watch instead."""
        bell, place = self._bell, self._place
        self._bell = self._place = None
        self.close()
        return [] if bell is None else bell.ring(1, place)

    def close(self) -> None:
        """Close the connection; the next wait opens a new one."""
        self._watched, self._armed = frozenset(), None
        self._renewed_at = 0.0
        self._watch.close()

    def _await(self, deadline: float) -> None:
        """Wait for a notice, for as long as heartbeats look after a lost one."""
        while not (self._watch.noticed or self._stop.is_set()):
            left = min(deadline, self._looked_at + LATEST_LOOK_S) - time.monotonic()
            if left <= 0:
                break
            self._watch.wait(left)

    def _waits_with_claim(self, busy: bool) -> bool:
        """True if the next wait at the doorbell has the claims and the look in its message.

        After a wait without a ring no place is likely to be free, and no job to be there.
        """
        return self._unrung and not busy and time.monotonic() >= self._young_until

    def _guards(
        self,
        bell: Doorbell,
        queue_keys: Sequence[str],
        deadline: float,
        *,
        busy: bool,
        noticed: Callable[[], None],
    ) -> bool:
        """Return True if this process has to watch; else wait at the doorbell for a ring."""
        if self._bell is None or self._bell.group != bell.group:
            if self._bell is not None:  # its queues have changed
                self._ask(self._bell.ring(1, self._place))
            self._place, self._bell = None, bell
        if self._place is not None and (busy or not self._renewed_at):
            self._keep(bell, self._place, busy=busy)
        # It claims a place also while it runs jobs: it may be the only process.
        with_wait = self._waits_with_claim(busy)
        self._unrung = False
        if self._place is None and not with_wait:
            self._claim(bell)
            if busy and self._place is not None:
                self._keep(bell, self._place, busy=True)
        self._rung = False
        if self._place is not None:
            return True
        self._watched, self._armed = frozenset(), None
        left = deadline - time.monotonic()
        first: list[tuple[Arg, ...]] = []
        if with_wait:
            first = [bell.claim(place).args for place in PLACES]
            first += [("EXISTS", *queue_keys)] if queue_keys else []
        ring = self._watch.pop(bell.key, left, unless=first) if left > 0.001 else None
        if isinstance(ring, list):
            self._have(bell, ring[: len(PLACES)])
            return self._place is not None
        self._unrung = ring is None
        if self._stop.is_set():
            return False
        if ring is not None and ring.decode() in PLACES:
            self._place = ring.decode()
            self._ask([bell.take_over(self._place)])
            self._renewed_at = time.monotonic()
            return True
        self._woken = self._rung = True
        if ring is not None:
            noticed()
        return False

    def _keep(self, bell: Doorbell, place: str, *, busy: bool) -> None:
        """Renew the place in time, or pass it on if another process waits."""
        now = time.monotonic()
        steps = self._renewal()
        replies = self._ask([*steps, *(bell.pass_on(place) if busy else [])])
        if (busy and replies[-1] is None) or (steps and not bell.has(replies[0])):
            self._place = None
        elif steps:
            self._renewed_at = now

    def _renewal(self) -> list[Command]:
        due = time.monotonic() >= self._renewed_at + RENEW_AFTER_S
        return self._bell.renew(self._place) if due and self._bell and self._place else []

    def _claim(self, bell: Doorbell) -> None:
        """Take a free place. One message asks for both, because usually none is free."""
        self._have(bell, self._ask([bell.claim(place) for place in PLACES]))
        if self._place is None and time.monotonic() < self._young_until:
            self._inherit(bell)

    def _have(self, bell: Doorbell, replies: Sequence[Any]) -> None:
        """Have the place that the claims of both won, if any."""
        won = [place for place, reply in zip(PLACES, replies, strict=True) if reply is not None]
        if won:
            self._place, self._renewed_at = won[0], time.monotonic()
            self._ask([bell.give_up(place) for place in won[1:]])

    def _inherit(self, bell: Doorbell) -> None:
        """Take a place of a dead process, which would keep it for half a minute."""
        owners = self._ask([bell.owner(place) for place in PLACES])
        had = [(place, owner) for place, owner in zip(PLACES, owners, strict=True) if owner]
        leases = self._ask([bell.lives(owner) for _, owner in had])
        dead = [place for (place, _), lives in zip(had, leases, strict=True) if not lives]
        if dead:
            self._place, self._renewed_at = dead[0], time.monotonic()
            self._ask([bell.take_over(dead[0])])

    def _ask(self, steps: Sequence[Command]) -> list[Any]:
        if not steps:
            return []
        self._armed = None
        replies = self._watch.ask([step.args for step in steps])
        if not self._watched.isdisjoint(self._watch.missed | self._watch.noticed):
            self._watched = frozenset()  # so that this change ends the wait
        return replies

    def _something(self, queue_keys: Sequence[str], changes: Sequence[str]) -> bool:
        """Have notices sent; return True if there are jobs, or changes that were not seen yet.

        The same message renews the place of a guard.
        """
        asked = frozenset(key.encode() for key in changes)
        self._armed, renewal = None, self._renewal()
        now = self._looked_at = time.monotonic()
        # The queues come last, so that all earlier notices about them are old.
        looks = [("EXISTS", *keys) for keys in (changes, queue_keys) if keys]
        replies = self._watch.ask([*(step.args for step in renewal), *looks])
        if renewal and self._bell is not None:
            self._renewed_at = now
            if not self._bell.has(replies[0]):
                self._place = None
        unseen = not asked <= self._watched
        changed = not asked.isdisjoint(self._watch.missed | self._watch.noticed)
        self._watched = frozenset() if changed else asked
        self._watch.noticed.clear()
        lost = bool(renewal) and self._place is None
        return lost or unseen or changed or (bool(queue_keys) and replies[-1] > 0)
