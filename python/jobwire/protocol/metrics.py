"""Metrics: executions by job class and time, for Sidekiq's metrics page.

[MET-1] to [MET-5] [MET-7] [MET-8] [MET-9]

Writers and readers both use the key names and encodings of this module.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from jobwire.errors import RedisRefused
from jobwire.protocol.keys import Keys
from jobwire.protocol.times import MILLISECONDS_FROM, Generation, read
from jobwire.protocol.wire import Arg, Batch, Command, Op, command

__all__ = [
    "BOUNDS",
    "MARK_TTL_S",
    "MINUTE_S",
    "MINUTE_TTL_S",
    "TENS_TTL_S",
    "TEN_MINUTES_S",
    "WAITS",
    "Executions",
    "Metrics",
    "ThreadMetrics",
    "Totals",
    "histogram_key",
    "mark_deploy",
    "marks_key",
    "minute_key",
    "read_histogram",
    "read_rollup",
    "read_waits",
    "tens_key",
    "waits_key",
]

MINUTE_S = 60  # length of a bucket
TEN_MINUTES_S = 600
MINUTE_TTL_S = 28_800  # for rollups of a minute, and histograms [MET-3]
TENS_TTL_S = 259_200  # for rollups of ten minutes [MET-3]
MARK_TTL_S = 7_776_000  # for deployment marks [MET-14]
LOCK_TTL_S = 60  # within which a label is marked only once [MET-15]

BOUNDS = (
    *(20, 30, 45, 65, 100, 150, 225, 335, 500, 750, 1_100, 1_700, 2_500, 3_800, 5_750, 8_500),
    *(13_000, 20_000, 30_000, 45_000, 65_000, 100_000, 150_000, 225_000, 335_000),
)
"""Upper bounds of the counters in milliseconds; the 26th counter has no bound. [MET-11]"""

WAITS = tuple(1 << power for power in range(31))
"""Upper bounds of the counters of waiting times in milliseconds; the 32nd has no bound."""

_COUNTERS = struct.Struct(f">{len(BOUNDS) + 1}H")
_WAIT_COUNTERS = struct.Struct(f">{len(WAITS) + 1}I")
_COUNT, _FAILED, _MS, _US, _HISTOGRAM = 0, 1, 2, 3, 4  # indexes into the numbers of a class
_ZEROES = [0] * (_HISTOGRAM + len(BOUNDS) + 1)
_NO_WAITS = [0] * (len(WAITS) + 1)


# -- key names


def minute_key(keys: Keys, at: float, generation: Generation = 8) -> str:
    """Return the key of the rollup of the minute of epoch second `at`. [MET-1] [MET-4]"""
    when = datetime.fromtimestamp(at, UTC)
    if generation == 7:
        return keys.rollup(f"{when:%Y%m%d}|{when.hour}:{when.minute}")
    return keys.rollup(f"{when:%y%m%d}|{when.hour}:{when:%M}")


def tens_key(keys: Keys, at: float) -> str:
    """Return the key of the rollup of the ten minutes of epoch second `at`. [MET-1]"""
    when = datetime.fromtimestamp(at, UTC)
    return keys.rollup(f"{when:%y%m%d}|{when.hour}:{when.minute // 10}")


def histogram_key(keys: Keys, class_name: str, at: float, generation: Generation = 8) -> str:
    """Return the key of the histogram of a class and the minute of `at`. [MET-2] [MET-4]"""
    when = datetime.fromtimestamp(at, UTC)
    if generation == 7:
        return keys.old_histogram(class_name, f"{when:%d-%H}:{when.minute}")
    return keys.histogram(class_name, f"{when.day}-{when.hour}:{when.minute}")


def waits_key(keys: Keys, at: float, step: int) -> str:
    """Return the key of the waiting times of a bucket of 60 or 600 s that holds `at`. [KEY-5]"""
    when = datetime.fromtimestamp(at, UTC)
    minute = f"{when:%M}" if step == MINUTE_S else f"{when.minute // 10}"
    return keys.waits(f"{when:%y%m%d}|{when.hour}:{minute}")


def marks_key(keys: Keys, at: float) -> str:
    """Return the key of the deployment marks of the UTC day of epoch second `at`. [MET-5]"""
    return keys.marks(f"{datetime.fromtimestamp(at, UTC):%Y%m%d}")


# -- encodings


class Totals(msgspec.Struct, frozen=True, gc=False):
    """Executions of one class in one time bucket; `ms` counts those that did not fail."""

    count: int = 0
    failed: int = 0
    ms: int = 0

    @property
    def average_ms(self) -> float:
        """Mean duration of the executions that did not fail; 0 if all failed."""
        succeeded = self.count - self.failed
        return self.ms / succeeded if succeeded > 0 else 0.0


_PLACES = {b"p": 0, b"f": 1, b"ms": 2}  # of the counters of a class


def read_rollup(fields: Mapping[bytes, bytes]) -> dict[str, Totals]:
    """Return the totals of a rollup by class, without fields of other programs. [MET-1]"""
    by_class: dict[bytes, list[int]] = {}
    for name, value in fields.items():
        class_name, bar, counter = name.rpartition(b"|")
        if bar and counter in _PLACES:
            try:
                by_class.setdefault(class_name, [0, 0, 0])[_PLACES[counter]] = int(value)
            except ValueError:
                continue
    # Names are decoded last, because each appears three times in a large hash.
    return {
        class_name.decode("utf-8", "replace"): Totals(*counters)
        for class_name, counters in by_class.items()
    }


def read_histogram(text: bytes | None) -> tuple[int, ...]:
    """Return the 26 counters of a histogram; see `BOUNDS`. [MET-2]"""
    padded = (text or b"")[: _COUNTERS.size].ljust(_COUNTERS.size, b"\0")
    counters: tuple[int, ...] = _COUNTERS.unpack(padded)
    return counters


def read_waits(text: bytes | None) -> tuple[int, ...]:
    """Return the 32 counters of waiting times of one bucket; see `WAITS`."""
    padded = (text or b"")[: _WAIT_COUNTERS.size].ljust(_WAIT_COUNTERS.size, b"\0")
    counters: tuple[int, ...] = _WAIT_COUNTERS.unpack(padded)
    return counters


# -- recording


class Executions(NamedTuple):
    """Executions of one class by one process since its start.

    `microseconds` and `histogram` count those that did not fail; see `BOUNDS`.
    """

    total: int
    failed: int
    microseconds: int
    histogram: Sequence[int]


class ThreadMetrics:
    """Counts of the executions of one thread, made by `Metrics.for_thread`.

    Only that thread records.

    No lock is needed, because only one thread writes the numbers and they only grow. Another
    thread that reads them may miss the newest executions, and sees them the next time.
    """

    __slots__ = ("_numbers", "_waits")

    def __init__(self) -> None:
        self._numbers: dict[str, list[int]] = {}
        self._waits = _NO_WAITS.copy()

    def record(self, class_name: str, ms: float, failed: bool) -> None:
        """Count an execution.

        Args:
            class_name: `Job.display_class`, which for ActiveJob is the wrapped class.
            ms: Its duration in milliseconds.
            failed: True if it raised an error. An interrupted iteration is not a failure.
        """
        numbers = self._numbers.get(class_name)
        if numbers is None:
            numbers = self._numbers[class_name] = _ZEROES.copy()
        numbers[_COUNT] += 1
        if failed:
            numbers[_FAILED] += 1
        else:
            microseconds = int(ms * 1000)
            numbers[_US] += microseconds
            if microseconds < 1000:
                numbers[_HISTOGRAM] += 1
            else:
                whole_ms = microseconds // 1000
                numbers[_MS] += whole_ms
                numbers[_HISTOGRAM + bisect_right(BOUNDS, whole_ms)] += 1

    def began(self, now: float, enqueued: object) -> None:
        """Count how long a job waited in its queue, if its `enqueued_at` is a time."""
        if type(enqueued) is int and enqueued >= MILLISECONDS_FROM:  # of most jobs: without a call
            ms = int(now * 1000) - enqueued
        elif (at := read(enqueued)) is not None:
            ms = int((now - at) * 1000)
        else:
            return
        # The first power of two that is greater; clocks that differ make the time negative.
        power = ms.bit_length() if ms > 0 else 0
        self._waits[power if power < len(WAITS) else len(WAITS)] += 1

    def add(self, other: ThreadMetrics) -> None:
        """Add the numbers of `other`, whose thread must have ended."""
        for name, numbers in other.numbers().items():
            own = self._numbers.setdefault(name, _ZEROES.copy())
            own[:] = [old + new for old, new in zip(own, numbers, strict=True)]

    def numbers(self) -> dict[str, list[int]]:
        """Return a copy of the current numbers; any thread may call this."""
        return {name: numbers.copy() for name, numbers in self._numbers.copy().items()}

    def waits(self) -> list[int]:
        """Return a copy of the counts by waiting time; any thread may call this."""
        return self._waits.copy()


class Metrics:
    """The counts of all threads of a process, and the part of them that is already in Redis.

    Only one thread at a time may flush.
    """

    def __init__(self) -> None:
        self._threads: list[ThreadMetrics] = []
        self._flushed: dict[str, list[int]] = {}
        self._flushed_waits = _NO_WAITS

    def for_thread(self) -> ThreadMetrics:
        """Return the counts for one more thread."""
        counts = ThreadMetrics()
        self._threads.append(counts)
        return counts

    def executions(self) -> dict[str, Executions]:
        """Return all executions by class; any thread may call this."""
        totals = _sum(counts.numbers() for counts in self._threads.copy())
        return {
            name: Executions(numbers[_COUNT], numbers[_FAILED], numbers[_US], numbers[_HISTOGRAM:])
            for name, numbers in totals.items()
        }

    def flush(self, keys: Keys, *, now: float, generation: Generation = 8) -> Op[None]:
        """Add the executions since the last flush in one transaction. [MET-1] to [MET-4]

        Args:
            keys: Key names.
            now: Epoch seconds. The executions count at the time of the flush.
            generation: 7 to write also the keys that Sidekiq 7 reads. [MET-4]

        Raises:
            RedisTrouble: The next flush adds the same executions. If this flush got no reply, they
                may then count twice. If Redis refused single keys because they have another type,
                the other keys are written and the next flush does not repeat them.
        """
        totals = _sum(counts.numbers() for counts in self._threads)
        by_thread = (counts.waits() for counts in self._threads)
        waits = [sum(column) for column in zip(_NO_WAITS, *by_thread, strict=True)]
        unflushed = {
            name: [new - old for new, old in zip(numbers, self._old(name), strict=True)]
            for name, numbers in totals.items()
            if numbers != self._old(name)
        }
        additions = _additions(keys, unflushed, now, generation) if unflushed else []
        new_waits = [new - old for new, old in zip(waits, self._flushed_waits, strict=True)]
        if any(new_waits):
            additions += _wait_additions(keys, new_waits, now)
        if not additions:
            return
        try:
            yield Batch(additions, atomic=True)
        except RedisRefused as error:
            if error.replies:
                self._flushed, self._flushed_waits = totals, waits
            raise
        self._flushed, self._flushed_waits = totals, waits

    def _old(self, name: str) -> list[int]:
        return self._flushed.get(name, _ZEROES)


def _sum(counts: Iterable[Mapping[str, Sequence[int]]]) -> dict[str, list[int]]:
    totals: dict[str, list[int]] = {}
    for by_class in counts:
        for name, numbers in by_class.items():
            total = totals.get(name, _ZEROES)
            totals[name] = [old + new for old, new in zip(total, numbers, strict=True)]
    return totals


def _additions(
    keys: Keys, unflushed: Mapping[str, Sequence[int]], now: float, generation: Generation
) -> list[Command]:
    commands: list[Command] = []
    rollups = [(minute_key(keys, now), MINUTE_TTL_S), (tens_key(keys, now), TENS_TTL_S)]
    generations: list[Generation] = [8]
    if generation == 7:
        rollups.append((minute_key(keys, now, 7), MINUTE_TTL_S))
        generations.append(7)
    for class_name, numbers in unflushed.items():
        increments: list[Arg] = []
        for index, number in enumerate(numbers[_HISTOGRAM:]):
            if number:
                increments += ("INCRBY", "u16", f"#{index}", number)
        if not increments:
            continue
        for written in generations:
            key = histogram_key(keys, class_name, now, written)
            commands += (
                command("BITFIELD", key, "OVERFLOW", "SAT", *increments),
                command("EXPIRE", key, MINUTE_TTL_S),
            )
    for key, ttl in rollups:
        for class_name, numbers in unflushed.items():
            for counter, index in (("p", _COUNT), ("f", _FAILED), ("ms", _MS)):
                if numbers[index]:
                    name = f"{class_name}|{counter}"
                    commands.append(command("HINCRBY", key, name, numbers[index]))
        commands.append(command("EXPIRE", key, ttl))
    return commands


def _wait_additions(keys: Keys, waits: Sequence[int], now: float) -> list[Command]:
    commands: list[Command] = []
    for step, ttl in ((MINUTE_S, MINUTE_TTL_S), (TEN_MINUTES_S, TENS_TTL_S)):
        increments: list[Arg] = []
        for index, number in enumerate(waits):
            if number:
                increments += ("INCRBY", "u32", f"#{index}", number)
        key = waits_key(keys, now, step)
        commands.append(command("BITFIELD", key, "OVERFLOW", "SAT", *increments))
        commands.append(command("EXPIRE", key, ttl))
    return commands


# -- deployments


def mark_deploy(keys: Keys, label: str, *, now: float) -> Op[bool]:
    """Mark a deployment in the charts, once even if many processes ask for it. [MET-5] [MET-6]

    Args:
        keys: Key names.
        label: Name of the deployed version, such as `v1.2` or a commit.
        now: Epoch seconds.

    Returns:
        True if this call made the mark. False if the label was marked within the last minute, or
        if the minute has another mark.
    """
    stamp = f"{datetime.fromtimestamp(now, UTC):%Y-%m-%dT%H:%M:00Z}"
    lock = keys.deploy_lock(label)
    if not (yield command("SET", lock, stamp, "NX", "EX", LOCK_TTL_S)):
        # The process that took the lock may have failed before it made the mark. This call makes
        # the mark at the time of that process.
        locked_at: bytes | None = yield command("GET", lock)
        stamp = stamp if locked_at is None else locked_at.decode("utf-8", "replace")
    key = keys.marks(stamp[:10].replace("-", ""))
    made, _ = yield Batch(
        [command("HSETNX", key, stamp, label), command("EXPIRE", key, MARK_TTL_S)], atomic=True
    )
    return bool(made)
