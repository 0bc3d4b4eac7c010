"""jobwire.protocol.metrics: names, encodings, and counts that are exact."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from jobwire.errors import NoReply, RedisRefused
from jobwire.protocol.keys import Keys
from jobwire.protocol.metrics import (
    Metrics,
    ThreadMetrics,
    Totals,
    read_histogram,
    read_rollup,
    read_waits,
)
from jobwire.protocol.wire import Arg, Batch, Command, Op

KEYS = Keys()
NOW = datetime(2025, 2, 4, 8, 4, 59, tzinfo=UTC).timestamp()


def test_reading() -> None:
    """MET-1, MET-2: short and missing histograms; unknown fields; names with a bar."""
    assert read_histogram(None) == (0,) * 26
    assert read_histogram(b"\0\1\2\3\4")[:4] == (1, 0x0203, 0x0400, 0)
    assert read_histogram(b"\xff" * 60) == (65_535,) * 26
    fields = {b"A|p": b"3", b"A|f": b"1", b"A|ms": b"50", b"B|C|p": b"2", b"x": b"1"}
    fields |= {b"A|z": b"1", b"D|p": b"none"}
    read = read_rollup(fields)
    assert read["A"] == Totals(3, 1, 50)
    assert read["A"].average_ms == 25
    assert read["B|C"] == Totals(2)
    assert set(read) == {"A", "B|C"}
    assert Totals(1, 1).average_ms == 0


def said(batch: Batch) -> list[tuple[Arg, ...]]:
    return [each.args for each in batch.steps if isinstance(each, Command)]


def words(op: Op[Any]) -> list[tuple[Arg, ...]]:
    """Return the commands of a flush that succeeds."""
    step = next(op, None)
    if step is None:
        return []
    assert isinstance(step, Batch)
    assert step.atomic
    with pytest.raises(StopIteration):
        op.send([1] * len(step.steps))
    return said(step)


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (NoReply("gone"), True),
        (RedisRefused("READONLY You can't write"), True),
        (RedisRefused("WRONGTYPE Operation", ["an error", 1]), False),
    ],
)
def test_what_a_failed_flush_keeps(error: Exception, kept: bool) -> None:
    """MET-1: all counts, unless the server executed all but the refused commands."""
    metrics = Metrics()
    metrics.for_thread().record("A", 25, failed=False)
    flush = metrics.flush(KEYS, now=NOW)
    next(flush)
    with pytest.raises(type(error)):
        flush.throw(error)
    assert bool(words(metrics.flush(KEYS, now=NOW))) is kept


def test_waiting_times_are_counted_by_powers_of_two() -> None:
    """KEY-5: in a minute for 8 hours, in ten minutes for three days, each only once."""
    metrics = Metrics()
    now_ms = int(NOW * 1000)
    for enqueued in ((now_ms + 1000, NOW - 0.0009, now_ms - 1), (now_ms - 3, 0, "no time")):
        thread = metrics.for_thread()
        for value in enqueued:
            thread.began(NOW, value)
    counted = [
        *("INCRBY", "u32", "#0", 2, "INCRBY", "u32", "#1", 1),
        *("INCRBY", "u32", "#2", 1, "INCRBY", "u32", "#31", 1),
    ]
    assert words(metrics.flush(KEYS, now=NOW)) == [
        ("BITFIELD", "jobwire:waits:250204|8:04", "OVERFLOW", "SAT", *counted),
        ("EXPIRE", "jobwire:waits:250204|8:04", 28_800),
        ("BITFIELD", "jobwire:waits:250204|8:0", "OVERFLOW", "SAT", *counted),
        ("EXPIRE", "jobwire:waits:250204|8:0", 259_200),
    ]
    assert words(metrics.flush(KEYS, now=NOW)) == []
    assert read_waits(b"\0\0\0\1\0\0\2") == (1, 0x200) + (0,) * 30
    assert read_waits(None) == (0,) * 32


def test_threads_record_while_another_flushes() -> None:
    """MET-7: every execution is counted once, without a lock."""
    metrics, each, names = Metrics(), 20_000, ("A", "B", "C")
    tallies = [metrics.for_thread() for _ in range(4)]

    def work(tally: ThreadMetrics) -> None:
        for number in range(each):
            tally.record(names[number % 3], number % 100, failed=number % 10 == 0)

    threads = [threading.Thread(target=work, args=(tally,)) for tally in tallies]
    for thread in threads:
        thread.start()
    flushed: list[tuple[Arg, ...]] = []
    while any(thread.is_alive() for thread in threads):
        flushed += words(metrics.flush(KEYS, now=NOW))
    flushed += words(metrics.flush(KEYS, now=NOW))
    minute = [args for args in flushed if args[:2] == ("HINCRBY", "j|250204|8:04")]
    counts = dict.fromkeys(("p", "f", "ms"), 0)
    for _, _, field, number in minute:
        counts[str(field).rpartition("|")[2]] += int(number)
    whole = len(tallies) * each
    slow = len(tallies) * sum(number % 100 for number in range(each) if number % 10)
    assert counts == {"p": whole, "f": whole // 10, "ms": slow}
