"""Fetches in flight: sent and not read, or sent and never answered."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["FetchesInFlight", "PendingFetch", "SequenceNumbers", "Unanswered"]


class SequenceNumbers:
    """Numbers that no two private entries of a process share. Shared by its capsules."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # Guards `_next`.
        self._next = 1  # guarded by `_lock`

    def reserve(self, count: int) -> range:
        """Return `count` fresh numbers."""
        with self._lock:
            first = self._next
            self._next += count
        return range(first, first + count)


@dataclass(frozen=True, slots=True)
class PendingFetch:
    """A fetch without a reply so far: its jobs are held and not known yet.

    Attributes:
        queues: Names, in the order in which the fetch looks at them.
        numbers: One for each job that was asked for.
        sent_at: Seconds of the clock that also runs while the machine is suspended.
        ahead: True if it was sent while there were jobs to run, so that no thread waits for it.
        reply: Reads the reply. Must be called exactly once.
    """

    queues: Sequence[str]
    numbers: range
    sent_at: float
    ahead: bool
    reply: Callable[[], Any]


class Unanswered(NamedTuple):
    """A fetch whose reply was lost: its jobs are held by this process and known to no thread."""

    numbers: range
    since: float  # monotonic seconds


class FetchesInFlight:
    """The fetches of one capsule that are under way. Thread-safe.

    Args:
        reclaim_interval: Seconds between two checks for the jobs of unanswered fetches.
        reclaim_for: Seconds for which these checks go on, because the server may carry out such
            a fetch after a later command.

    Attributes:
        any_pending: True if a reply is to be read. The leader reads this for every job, without the
            lock: it may still see a fetch that another thread has taken, and never misses one of
            its own, because no other thread adds any.
        begun: Number of fetches so far.
    """

    def __init__(self, *, reclaim_interval: float, reclaim_for: float) -> None:
        self._reclaim_interval = reclaim_interval
        self._reclaim_for = reclaim_for
        self._lock = threading.Lock()
        # Guards `_pending`, `any_pending` and `begun` (writes), `_unanswered`, `_reclaimed_at`,
        # `_open`.
        self._pending: deque[PendingFetch] = deque()  # guarded by `_lock`
        self.any_pending = False
        self.begun = 0
        self._unanswered: list[Unanswered] = []  # guarded by `_lock`
        self._reclaimed_at: float | None = None  # guarded by `_lock`
        self._open: dict[int, range] = {}  # guarded by `_lock`

    def begin(self, numbers: range) -> None:
        """Note that jobs may arrive under these numbers, until `end`."""
        with self._lock:
            self._open[numbers.start] = numbers
            self.begun += 1

    def end(self, numbers: range) -> None:
        """Note that no more jobs arrive under these numbers: those that did are in the buffer."""
        with self._lock:
            self._open.pop(numbers.start, None)

    def open_numbers(self) -> list[range]:
        """Return the numbers under which jobs may still arrive."""
        with self._lock:
            return list(self._open.values())

    def add(self, fetch: PendingFetch) -> None:
        """Have a reply read later, by the thread that needs it first."""
        with self._lock:
            self._pending.append(fetch)
            self.any_pending = True

    def take(self) -> PendingFetch | None:
        """Return the fetch that was sent first, to read its reply now."""
        with self._lock:
            fetch = self._pending.popleft() if self._pending else None
            self.any_pending = bool(self._pending)
            return fetch

    def age(self, now: float) -> float | None:
        """Return the seconds since the first fetch was sent; None if none is to be read."""
        with self._lock:
            return now - self._pending[0].sent_at if self._pending else None

    def lost(self, numbers: Iterable[range], now: float) -> None:
        """Remember entries whose fetch, or return, got no reply, at a monotonic time."""
        fetches = [Unanswered(reserved, now) for reserved in numbers]
        with self._lock:
            self._unanswered.extend(fetches)

    @property
    def any_unanswered(self) -> bool:
        """True if there may be entries to reclaim."""
        with self._lock:
            return bool(self._unanswered)

    def to_reclaim(self, now: float) -> list[range]:
        """Return the numbers of unanswered fetches, if it is time to check for them again."""
        with self._lock:
            last = self._reclaimed_at
            if last is not None and now - last < self._reclaim_interval:
                return []
            return [fetch.numbers for fetch in self._unanswered]

    def reclaimed(self, now: float) -> None:
        """Forget fetches that were checked for long enough when the check began, at `now`."""
        with self._lock:
            self._reclaimed_at = now
            self._unanswered = [
                fetch for fetch in self._unanswered if now - fetch.since < self._reclaim_for
            ]
