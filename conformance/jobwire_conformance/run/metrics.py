"""The execution counts of a worker by class, over all minutes of a case. [MET-1]"""

from __future__ import annotations

import math
import struct
import time
from collections.abc import Iterator

from jobwire_conformance.cases.match import Scope
from jobwire_conformance.wire.link import Link

__all__ = ["Counted", "histogram_key"]

_BOUNDS = (
    *(20, 30, 45, 65, 100, 150, 225, 335, 500, 750, 1100, 1700, 2500, 3800, 5750, 8500, 13000),
    *(20000, 30000, 45000, 65000, 100000, 150000, 225000, 335000, math.inf),
)
"""Upper bound of each counter of the histogram, in milliseconds. [MET-2]"""
_COUNTERS = struct.Struct(f">{len(_BOUNDS)}H")


def histogram_key(class_name: str, at: time.struct_time) -> str:
    """Return the key of the histogram of a class in the minute of a time in UTC. [MET-1]"""
    return f"h|{class_name}-{at.tm_mday}-{at.tm_hour}:{at.tm_min}"


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

    def classes(self, pattern: str) -> list[str]:
        """Return the classes that a pattern means: with `*` at its end, all that begin so.

        It is the pattern itself if there are none.
        """
        if not pattern.endswith("*"):
            return [pattern]
        fields = [
            field.decode("utf-8", "replace")
            for key in dict.fromkeys(self._keys("minute", ""))
            for field in self._link.call("HKEYS", self._prefix + key)
        ]
        names = {field.rpartition("|")[0] for field in fields}
        return sorted(name for name in names if name.startswith(pattern[:-1])) or [pattern]

    def part(self, class_name: str, part: str) -> int | bool | None:
        """Return one value of a class.

        Args:
            class_name: Name of the class.
            part: `minute.p`, `minute.f`, `minute.ms`, and the same of `ten_minutes`: the sum.
                `old_minute` and `old_histogram` are the keys of generation 7.3. [MET-4]
                `histogram.count`: the sum of all counters. `histogram.fits`: True if the only
                execution is in the counter of its duration. `minute.ttl` and so on: the smallest
                number of seconds to live, -1 without an expiry, None without a key;
                `minute.renewed`: the largest. `histogram.least`, `histogram.most`: the smallest
                and the largest of all counters.
        """
        kind, _, value = part.partition(".")
        keys = [
            self._prefix + key
            for key in dict.fromkeys(self._keys(kind, class_name))
            if self._link.call("EXISTS", self._prefix + key)
        ]
        if value in ("ttl", "renewed"):
            choose = min if value == "ttl" else max
            return choose((int(self._link.call("TTL", key)) for key in keys), default=None)
        if value in ("least", "most"):
            choose = min if value == "least" else max
            counters = [count for key in keys for count in self._counters(key)]
            return choose(counters, default=None)
        if value == "count":
            return sum(self._histogram(keys))
        if value == "fits":
            took = self.part(class_name, kind.replace("histogram", "minute") + ".ms")
            wanted = [0] * len(_BOUNDS)
            wanted[next(index for index, bound in enumerate(_BOUNDS) if (took or 0) < bound)] = 1
            return self._histogram(keys) == wanted
        return sum(int(self._link.call("HGET", key, f"{class_name}|{value}") or 0) for key in keys)

    def _keys(self, kind: str, class_name: str) -> Iterator[str]:
        for at in self._minutes:
            if kind == "histogram":
                yield histogram_key(class_name, at)
                continue
            if kind == "old_histogram":
                yield f"{class_name}-{at.tm_mday:02}-{at.tm_hour:02}:{at.tm_min}"
                continue
            if kind == "old_minute":
                yield f"j|{time.strftime('%Y%m%d', at)}|{at.tm_hour}:{at.tm_min}"
                continue
            day, hour, minute = time.strftime("%y%m%d", at), at.tm_hour, at.tm_min
            if kind == "minute":
                yield f"j|{day}|{hour}:{minute:02}"
            else:
                yield f"j|{day}|{hour}:{minute // 10}"

    def _histogram(self, keys: list[str]) -> list[int]:
        sums = [0] * len(_BOUNDS)
        for key in keys:
            for index, count in enumerate(self._counters(key)):
                sums[index] += count
        return sums

    def _counters(self, key: str) -> tuple[int, ...]:
        text = self._link.call("GET", key)[: _COUNTERS.size].ljust(_COUNTERS.size, b"\0")
        counters: tuple[int, ...] = _COUNTERS.unpack(text)
        return counters
