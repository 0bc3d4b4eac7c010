"""Executions by job class and time, as Sidekiq's page of metrics draws them. [MET-1] to [MET-5]

What is written here is read elsewhere by the names and encodings below: both sides use them.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from jobwire.errors import RedisRefused
from jobwire.protocol.keys import Keys
from jobwire.protocol.times import Generation
from jobwire.protocol.wire import Arg, Batch, Command, Op, command

__all__ = [
    "BOUNDS",
    "MARK_TTL",
    "MINUTE_TTL",
    "TENS_TTL",
    "Metrics",
    "Tally",
    "Totals",
    "histogram_key",
    "mark_deploy",
    "marks_key",
    "minute_key",
    "read_histogram",
    "read_rollup",
    "tens_key",
]

MINUTE_TTL = 28_800  # seconds, of minutes and histograms [MET-3]
TENS_TTL = 259_200  # seconds, of ten minutes [MET-3]
MARK_TTL = 7_776_000  # seconds, of marks [MET-5]
LOCK_TTL = 60  # seconds in which a label is marked once [MET-5]

BOUNDS = (
    *(20, 30, 45, 65, 100, 150, 225, 335, 500, 750, 1_100, 1_700, 2_500, 3_800, 5_750, 8_500),
    *(13_000, 20_000, 30_000, 45_000, 65_000, 100_000, 150_000, 225_000, 335_000),
)
"""Milliseconds below which an execution falls into the counter of the same index; a last counter,
the 26th, has no bound. [MET-2]
"""

_COUNTERS = struct.Struct(f">{len(BOUNDS) + 1}H")
_COUNT, _FAILED, _MS, _HISTOGRAM = 0, 1, 2, 3  # places in the numbers of a class
_ZEROES = [0] * (_HISTOGRAM + len(BOUNDS) + 1)


# -- names


def minute_key(keys: Keys, at: float, generation: Generation = 8) -> str:
    """Return the hash of the minute that epoch second `at` is in. [MET-1] [MET-4]"""
    when = datetime.fromtimestamp(at, UTC)
    if generation == 7:
        return keys.rollup(f"{when:%Y%m%d}|{when.hour}:{when.minute}")
    return keys.rollup(f"{when:%y%m%d}|{when.hour}:{when:%M}")


def tens_key(keys: Keys, at: float) -> str:
    """Return the hash of the ten minutes that epoch second `at` is in. [MET-1]"""
    when = datetime.fromtimestamp(at, UTC)
    return keys.rollup(f"{when:%y%m%d}|{when.hour}:{when.minute // 10}")


def histogram_key(keys: Keys, class_name: str, at: float, generation: Generation = 8) -> str:
    """Return the histogram of a class in the minute of epoch second `at`. [MET-2] [MET-4]"""
    when = datetime.fromtimestamp(at, UTC)
    if generation == 7:
        return keys.old_histogram(class_name, f"{when:%d-%H}:{when.minute}")
    return keys.histogram(class_name, f"{when.day}-{when.hour}:{when.minute}")


def marks_key(keys: Keys, at: float) -> str:
    """Return the hash of the deployments on the UTC day of epoch second `at`. [MET-5]"""
    return keys.marks(f"{datetime.fromtimestamp(at, UTC):%Y%m%d}")


# -- encodings


@dataclass(frozen=True, slots=True)
class Totals:
    """The executions of one class in one span of time; `ms` of those that did not fail."""

    count: int = 0
    failed: int = 0
    ms: int = 0

    @property
    def average_ms(self) -> float:
        """Mean duration of an execution that did not fail; 0 if all did."""
        succeeded = self.count - self.failed
        return self.ms / succeeded if succeeded > 0 else 0.0


def read_rollup(fields: Mapping[bytes, bytes]) -> dict[str, Totals]:
    """Return what a minute or ten minutes say, by class. Foreign fields are left out. [MET-1]"""
    found: dict[str, dict[str, int]] = {}
    for name, value in fields.items():
        class_name, bar, what = name.decode("utf-8", "replace").rpartition("|")
        if bar and what in ("p", "f", "ms"):
            try:
                found.setdefault(class_name, {})[what] = int(value)
            except ValueError:
                continue
    return {
        class_name: Totals(each.get("p", 0), each.get("f", 0), each.get("ms", 0))
        for class_name, each in found.items()
    }


def read_histogram(text: bytes | None) -> tuple[int, ...]:
    """Return the 26 counters of a histogram; see `BOUNDS`. [MET-2]"""
    whole = (text or b"")[: _COUNTERS.size].ljust(_COUNTERS.size, b"\0")
    counters: tuple[int, ...] = _COUNTERS.unpack(whole)
    return counters


# -- recording


class Tally:
    """What one thread has executed. Made by `Metrics.tally`; only that thread may record.

    Numbers only grow, and nobody but their thread writes them: whoever reads them meanwhile
    misses at most what comes with the next look, and no lock is needed.
    """

    __slots__ = ("_numbers",)

    def __init__(self) -> None:
        self._numbers: dict[str, list[int]] = {}

    def record(self, class_name: str, ms: float, failed: bool) -> None:
        """Count an execution.

        Args:
            class_name: `Job.display_class`: the class that an ActiveJob wraps, not the wrapper.
            ms: How long it took, in milliseconds.
            failed: Whether it raised. An interrupted iteration did not.
        """
        numbers = self._numbers.get(class_name)
        if numbers is None:
            numbers = self._numbers[class_name] = _ZEROES.copy()
        numbers[_COUNT] += 1
        if failed:
            numbers[_FAILED] += 1
        else:
            whole = int(ms)
            numbers[_MS] += whole
            numbers[_HISTOGRAM + bisect_right(BOUNDS, whole)] += 1

    def add(self, other: Tally) -> None:
        """Count what `other` has counted, which nobody writes any more."""
        for name, numbers in other.numbers().items():
            mine = self._numbers.setdefault(name, _ZEROES.copy())
            mine[:] = [one + more for one, more in zip(mine, numbers, strict=True)]

    def numbers(self) -> dict[str, list[int]]:
        """Return a copy of the numbers so far; callable from any thread."""
        return {name: numbers.copy() for name, numbers in self._numbers.copy().items()}


class Metrics:
    """All tallies of a process, and how much of them is in Redis. One thread at a time flushes."""

    def __init__(self) -> None:
        self._tallies: list[Tally] = []
        self._flushed: dict[str, list[int]] = {}

    def tally(self) -> Tally:
        """Return a tally for one more thread, to be kept as long as that thread."""
        tally = Tally()
        self._tallies.append(tally)
        return tally

    def flush(self, keys: Keys, *, now: float, generation: Generation = 8) -> Op[None]:
        """Add what was recorded since the last flush, in one transaction. [MET-1] to [MET-4]

        Args:
            keys: Key names.
            now: Epoch seconds: the time of the flush decides where executions count.
            generation: 7 to write also where Sidekiq 7 reads. [MET-4]

        Raises:
            RedisTrouble: Nothing is forgotten; the next flush adds it. Of an unanswered flush
                it may be the second time. Only where Redis refused single keys, for they hold
                something else, the rest is written and not repeated.
        """
        totals = _sum(tally.numbers() for tally in self._tallies)
        news = {
            name: [new - old for new, old in zip(numbers, self._old(name), strict=True)]
            for name, numbers in totals.items()
            if numbers != self._old(name)
        }
        if not news:
            return
        try:
            yield Batch(_additions(keys, news, now, generation), atomic=True)
        except RedisRefused as error:
            if error.replies:
                self._flushed = totals
            raise
        self._flushed = totals

    def _old(self, name: str) -> list[int]:
        return self._flushed.get(name, _ZEROES)


def _sum(parts: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, list[int]]:
    totals: dict[str, list[int]] = {}
    for part in parts:
        for name, numbers in part.items():
            old = totals.get(name, _ZEROES)
            totals[name] = [one + other for one, other in zip(old, numbers, strict=True)]
    return totals


def _additions(
    keys: Keys, news: Mapping[str, Sequence[int]], now: float, generation: Generation
) -> list[Command]:
    commands: list[Command] = []
    rollups = [(minute_key(keys, now), MINUTE_TTL), (tens_key(keys, now), TENS_TTL)]
    generations: list[Generation] = [8]
    if generation == 7:
        rollups.append((minute_key(keys, now, 7), MINUTE_TTL))
        generations.append(7)
    for class_name, numbers in news.items():
        increments: list[Arg] = []
        for index, number in enumerate(numbers[_HISTOGRAM:]):
            if number:
                increments += ("INCRBY", "u16", f"#{index}", number)
        if not increments:
            continue
        for each in generations:
            key = histogram_key(keys, class_name, now, each)
            commands += (
                command("BITFIELD", key, "OVERFLOW", "SAT", *increments),
                command("EXPIRE", key, MINUTE_TTL),
            )
    for key, ttl in rollups:
        for class_name, numbers in news.items():
            for what, index in (("p", _COUNT), ("f", _FAILED), ("ms", _MS)):
                if numbers[index]:
                    commands.append(command("HINCRBY", key, f"{class_name}|{what}", numbers[index]))
        commands.append(command("EXPIRE", key, ttl))
    return commands


# -- deployments


def mark_deploy(keys: Keys, label: str, *, now: float) -> Op[bool]:
    """Mark a deployment, for the charts; once, however many processes say so. [MET-5]

    Args:
        keys: Key names.
        label: What was deployed, such as `v1.2` or a commit.
        now: Epoch seconds.

    Returns:
        Whether this call made the mark. It did not if the label was marked within the last
        minute, or if the same minute has another.
    """
    stamp = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%dT%H:%M:00Z}"
    lock = keys.deploy_lock(label)
    if not (yield command("SET", lock, stamp, "NX", "EX", LOCK_TTL)):
        # Whoever came first may have been cut off before its mark: it is made in its name.
        first: bytes | None = yield command("GET", lock)
        stamp = stamp if first is None else first.decode("utf-8", "replace")
    key = keys.marks(stamp[:10].replace("-", ""))
    made, _ = yield Batch(
        [command("HSETNX", key, stamp, label), command("EXPIRE", key, MARK_TTL)], atomic=True
    )
    return bool(made)
