"""The progress of the parts of a worker process, which shows that it works. [BEAT-2]"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

__all__ = ["Part", "Progress"]

Part = Callable[[], object]
"""Returns a value that changes with each step of the part; None while it has nothing to do."""


class Progress:
    """Finds the parts of a process that hang.

    A thread calls `stuck` every few seconds: each call compares the parts with the call before.

    Args:
        parts: The parts, by their names in the log.
        limit: Seconds without a step after which a part hangs.
    """

    def __init__(self, parts: Mapping[str, Part], *, limit: float) -> None:
        self._parts = parts
        self._limit = limit
        self._lock = threading.Lock()  # Guards `_seen`.
        self._seen: dict[str, tuple[object, float]] = {}  # the value, and since when

    def stuck(self) -> str:
        """Return which part hangs, and for how long; "" if none does."""
        now = time.monotonic()
        with self._lock:
            for name, part in self._parts.items():
                value = part()
                seen = self._seen.get(name)
                if value is None:
                    self._seen.pop(name, None)
                elif seen is None or seen[0] != value:
                    self._seen[name] = value, now
                elif now - seen[1] > self._limit:
                    return f"{name} stuck for {now - seen[1]:.0f} s"
        return ""
