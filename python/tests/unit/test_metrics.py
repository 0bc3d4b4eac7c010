"""jobwire.protocol.metrics: names, encodings, and counts that are exact."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from jobwire.errors import NoReply, RedisRefused
from jobwire.protocol.keys import Keys
from jobwire.protocol.metrics import (
    BOUNDS,
    Metrics,
    ThreadMetrics,
    Totals,
    histogram_key,
    mark_deploy,
    marks_key,
    minute_key,
    read_histogram,
    read_rollup,
    tens_key,
)
from jobwire.protocol.wire import Arg, Batch, Command, Op, command
from tests.rows import over

KEYS = Keys()
NOW = datetime(2025, 2, 4, 8, 4, 59, tzinfo=UTC).timestamp()
LATE = datetime(2025, 12, 14, 18, 43, tzinfo=UTC).timestamp()


def test_names() -> None:
    """MET-1, MET-2: the padding is Sidekiq's own, and inconsistent."""
    assert minute_key(KEYS, NOW) == "j|250204|8:04"
    assert tens_key(KEYS, NOW) == "j|250204|8:0"
    assert histogram_key(KEYS, "HardJob", NOW) == "h|HardJob-4-8:4"
    assert (minute_key(KEYS, LATE), tens_key(KEYS, LATE)) == ("j|251214|18:43", "j|251214|18:4")
    assert histogram_key(KEYS, "A::B", LATE) == "h|A::B-14-18:43"
    assert marks_key(KEYS, NOW) == "20250204-marks"


def test_names_of_sidekiq_7() -> None:
    """MET-4: another form of the year, another padding, no prefix."""
    assert minute_key(KEYS, NOW, 7) == "j|20250204|8:4"
    assert histogram_key(KEYS, "HardJob", NOW, 7) == "HardJob-04-08:4"


@over(
    ("ms", "index"),
    [(0, 0), (19.9, 0), (20, 1), (29, 1), (334_999, 24), (335_000, 25), (10**9, 25)],
)
def test_the_counter_of_a_duration(ms: float, index: int) -> None:
    """MET-11: the first counter whose bound is greater than the whole milliseconds."""
    metrics = Metrics()
    metrics.for_thread().record("A", ms, failed=False)
    histogram = metrics.executions()["A"].histogram
    assert (len(histogram), histogram[index], sum(histogram)) == (26, 1, 1)
    assert len(BOUNDS) == 25


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


def test_a_flush() -> None:
    """MET-1 to MET-3, MET-7 to MET-9: failures have no duration; a count of 0 is not written."""
    metrics = Metrics()
    one, other = metrics.for_thread(), metrics.for_thread()
    one.record("A", 25, failed=False)
    other.record("A", 25.9, failed=False)
    other.record("B", 700, failed=True)
    assert words(metrics.flush(KEYS, now=NOW)) == [
        ("BITFIELD", "h|A-4-8:4", "OVERFLOW", "SAT", "INCRBY", "u16", "#1", 2),
        ("EXPIRE", "h|A-4-8:4", 28_800),
        ("HINCRBY", "j|250204|8:04", "A|p", 2),
        ("HINCRBY", "j|250204|8:04", "A|ms", 50),
        ("HINCRBY", "j|250204|8:04", "B|p", 1),
        ("HINCRBY", "j|250204|8:04", "B|f", 1),
        ("EXPIRE", "j|250204|8:04", 28_800),
        ("HINCRBY", "j|250204|8:0", "A|p", 2),
        ("HINCRBY", "j|250204|8:0", "A|ms", 50),
        ("HINCRBY", "j|250204|8:0", "B|p", 1),
        ("HINCRBY", "j|250204|8:0", "B|f", 1),
        ("EXPIRE", "j|250204|8:0", 259_200),
    ]
    assert words(metrics.flush(KEYS, now=NOW)) == []
    one.record("B", 1, failed=True)
    assert {each[2:] for each in words(metrics.flush(KEYS, now=NOW)) if each[0] == "HINCRBY"} == {
        ("B|p", 1),
        ("B|f", 1),
    }


def test_a_flush_beside_sidekiq_7() -> None:
    """MET-4: minute and histogram twice, ten minutes once."""
    metrics = Metrics()
    metrics.for_thread().record("A", 25, failed=False)
    keys = [each[1] for each in words(metrics.flush(KEYS, now=NOW, generation=7))]
    assert list(dict.fromkeys(keys)) == [
        *("h|A-4-8:4", "A-04-08:4", "j|250204|8:04", "j|250204|8:0", "j|20250204|8:4")
    ]


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


def test_marking_a_deployment() -> None:
    """At the minute; a second mark of a label goes to the time of the first.

    MET-5, MET-6, MET-14, MET-15.
    """
    op = mark_deploy(KEYS, "v1", now=NOW)
    stamp = "2025-02-04T08:04:00Z"
    assert next(op) == command("SET", "deploylock-v1", stamp, "NX", "EX", 60)
    assert op.send(None) == command("GET", "deploylock-v1")
    batch = op.send(b"2025-02-03T23:59:00Z")
    assert isinstance(batch, Batch)
    assert said(batch) == [
        ("HSETNX", "20250203-marks", "2025-02-03T23:59:00Z", "v1"),
        ("EXPIRE", "20250203-marks", 7_776_000),
    ]
    with pytest.raises(StopIteration) as done:
        op.send([0, 1])
    assert done.value.value is False
