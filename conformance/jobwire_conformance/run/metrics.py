"""The execution counts of a worker by class, over all minutes of a case. [MET-1]"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Iterator

from jobwire_conformance.cases.match import Scope
from jobwire_conformance.wire.link import Link

__all__ = ["Counted"]

_BOUNDS = (
    *(20, 30, 45, 65, 100, 150, 225, 335, 500, 750, 1100, 1700, 2500, 3800, 5750, 8500, 13000),
    *(20000, 30000, 45000, 65000, 100000, 150000, 225000, 335000, math.inf),
)
"""Upper bound of each counter of the histogram, in milliseconds. [MET-2]"""
_COUNTERS = struct.Struct(f">{len(_BOUNDS)}H")


class Counted:
    """The buckets of all minutes since the start of a case.

    Args:
        link: Connection to their Redis.
        prefix: Prefix of all keys.
        scope: Holds the start of the case and the current time.
    """

    def __init__(self, link: Link, prefix: str, scope: Scope) -> None:
        self._link = link
        self._prefix = prefix
        first, last = int(scope.began // 60), int(scope.now // 60)
        self._minutes = [time.gmtime(minute * 60) for minute in range(first, last + 1)]

    def part(self, class_name: str, part: str) -> int | bool | None:
        """Return one value of a class.

        Args:
            class_name: Name of the class.
            part: `minute.p`, `minute.f`, `minute.ms`, and the same of `ten_minutes`: the sum.
                `histogram.count`: the sum of all counters. `histogram.fits`: True if the only
                execution is in the counter of its duration. `minute.ttl` and so on: the smallest
                number of seconds to live, -1 without an expiry, None without a key.
        """
        kind, _, value = part.partition(".")
        keys = [
            self._prefix + key
            for key in dict.fromkeys(self._keys(kind, class_name))
            if self._link.call("EXISTS", self._prefix + key)
        ]
        if value == "ttl":
            return min((int(self._link.call("TTL", key)) for key in keys), default=None)
        if value == "count":
            return sum(self._histogram(keys))
        if value == "fits":
            took = self.part(class_name, "minute.ms")
            wanted = [0] * len(_BOUNDS)
            wanted[next(index for index, bound in enumerate(_BOUNDS) if (took or 0) < bound)] = 1
            return self._histogram(keys) == wanted
        return sum(int(self._link.call("HGET", key, f"{class_name}|{value}") or 0) for key in keys)

    def _keys(self, kind: str, class_name: str) -> Iterator[str]:
        for at in self._minutes:
            day, hour, minute = time.strftime("%y%m%d", at), at.tm_hour, at.tm_min
            if kind == "minute":
                yield f"j|{day}|{hour}:{minute:02}"
            elif kind == "ten_minutes":
                yield f"j|{day}|{hour}:{minute // 10}"
            else:
                yield f"h|{class_name}-{at.tm_mday}-{hour}:{minute}"

    def _histogram(self, keys: list[str]) -> list[int]:
        sums = [0] * len(_BOUNDS)
        for key in keys:
            text = self._link.call("GET", key)[: _COUNTERS.size].ljust(_COUNTERS.size, b"\0")
            for index, count in enumerate(_COUNTERS.unpack(text)):
                sums[index] += count
        return sums
