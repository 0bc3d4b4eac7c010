"""Sizes of queues over the last hour. Redis has no history of them, so the site keeps samples."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from jobwire.inspect.summary import QueueSummary

__all__ = ["EVERY_S", "GAP_S", "KEPT_S", "MAX_QUEUES", "SizeLine", "Sizes"]

EVERY_S = 10.0  # at least, between two samples
KEPT_S = 3600.0
MAX_QUEUES = 200
GAP_S = 150.0  # without a sample; a monitor that reads once a minute still makes a line


@dataclass(frozen=True, slots=True)
class SizeLine:
    """The samples of one queue, oldest first; there is at least one.

    Attributes:
        times: Epoch seconds of each.
        sizes: Number of jobs in each.
    """

    times: Sequence[float]
    sizes: Sequence[int]

    @property
    def seconds(self) -> float:
        """Seconds from the first sample to the last."""
        return self.times[-1] - self.times[0]


class Sizes:
    """Samples of the sizes of queues, in bounded memory. Threads may share it.

    A sample is taken when a page or a monitor reads the sizes anyway, so it costs Redis nothing,
    and there is none while neither does. The longest queues are kept: a queue that is no longer one
    of them loses its samples.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._times: deque[float] = deque()
        # The last value of each line belongs to the last time. A younger line is shorter.
        self._lines: dict[str, deque[int]] = {}

    def add(self, at: float, queues: Iterable[QueueSummary]) -> None:
        """Keep the sizes of all registered queues at `at`, unless the last sample is too young."""
        with self._lock:
            times = self._times
            if times and at < times[-1]:  # the clock was set back
                times.clear()
                self._lines.clear()
            if times and at - times[-1] < EVERY_S:
                return
            times.append(at)
            while times[0] < at - KEPT_S:
                times.popleft()
            registered = {queue.name: queue.size for queue in queues}
            # Sidekiq and jobwire take the name of a queue away when they delete all of its jobs.
            sizes = dict.fromkeys(self._lines, 0) | registered
            known = self._lines
            longest = sorted(sizes, key=lambda name: (-sizes[name], name not in known, name))
            self._lines = {name: known.get(name, deque()) for name in longest[:MAX_QUEUES]}
            for name, line in [*self._lines.items()]:
                line.append(sizes[name])
                while len(line) > len(times):
                    line.popleft()
                if name not in registered and not any(line):
                    del self._lines[name]

    def of(self, queue: str) -> SizeLine | None:
        """Return the samples of a queue; None if there are none."""
        with self._lock:
            line = self._lines.get(queue)
            return SizeLine(tuple(self._times)[-len(line) :], tuple(line)) if line else None

    @property
    def since(self) -> float | None:
        """Epoch second of the oldest sample of any queue, or None."""
        with self._lock:
            return self._times[0] if self._times else None
