"""Jobs in flight: those that are fetched, and the buffer that starts them in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from jobwire.protocol.reliable import InFlightJob
from jobwire.worker.fetch.buffer import Buffer, Slots
from jobwire.worker.fetch.inflight import (
    FetchesInFlight,
    PendingFetch,
    SequenceNumbers,
    Unanswered,
)


def fetches(reclaim_interval: float = 1.0, reclaim_for: float = 60.0) -> FetchesInFlight:
    return FetchesInFlight(reclaim_interval=reclaim_interval, reclaim_for=reclaim_for)


def pending(first: int, sent_at: float = 0.0) -> PendingFetch:
    return PendingFetch(["q"], range(first, first + 1), sent_at, False, lambda: None)


class Hooked(list[Any]):
    """A list that calls a function at the end of an iteration over it, before the result is
    used: the moment at which a second thread does the most harm.
    """

    def __init__(self, items: Iterable[Any], at_end: Callable[[], None]) -> None:
        super().__init__(items)
        self._at_end = at_end

    def __iter__(self) -> Iterator[Any]:
        yield from super().__iter__()
        self._at_end()


def test_a_fetch_that_is_lost_while_another_is_forgotten_is_kept() -> None:
    """REL-8: otherwise a process would hold jobs without knowing of them."""
    record: Any = fetches()
    other = threading.Thread(target=lambda: record.lost([range(7, 8)], 100.0))

    def meanwhile() -> None:
        other.start()
        other.join(0.2)  # if it waits for a lock, it continues after this

    record._unanswered = Hooked([Unanswered(range(1, 2), 0.0)], meanwhile)
    record.reclaimed(100.0)
    other.join(10)
    assert not other.is_alive()
    assert [each.numbers for each in list(record._unanswered)] == [range(7, 8)]


def test_many_threads_lose_nothing() -> None:
    """REL-8: also if threads run at the same time."""
    record = fetches(reclaim_interval=0.0)
    begin = threading.Barrier(5)

    def lose(first: int) -> None:
        begin.wait(10)
        for number in range(first, first + 2_000):
            record.lost([range(number, number + 1)], 100.0)

    threads = [threading.Thread(target=lose, args=[n * 2_000]) for n in range(4)]
    for thread in threads:
        thread.start()
    begin.wait(10)
    while any(thread.is_alive() for thread in threads):
        record.to_reclaim(100.0)
        record.reclaimed(100.0)
    assert sorted(each.start for each in record.to_reclaim(100.0)) == list(range(8_000))


def test_an_unanswered_fetch_is_looked_for_now_and_then_and_not_for_ever() -> None:
    """REL-8: the server may execute it late, but not after its lease."""
    record = fetches(reclaim_interval=1.0, reclaim_for=60.0)
    assert not record.any_unanswered
    record.lost([range(1, 3), range(5, 6)], 10.0)
    assert record.any_unanswered
    assert record.to_reclaim(10.0) == [range(1, 3), range(5, 6)]
    record.reclaimed(10.0)
    assert record.to_reclaim(10.9) == []
    assert record.to_reclaim(11.0) == [range(1, 3), range(5, 6)]
    record.lost([range(9, 10)], 30.0)
    record.reclaimed(70.0)
    assert record.to_reclaim(71.0) == [range(9, 10)]
    record.reclaimed(90.0)
    assert not record.any_unanswered


def test_replies_are_read_in_the_order_of_the_fetches() -> None:
    record = fetches()
    assert record.take() is None
    assert record.age(5.0) is None
    one, two = pending(1, sent_at=1.0), pending(2, sent_at=2.0)
    record.add(one)
    record.add(two)
    assert record.any_pending
    assert record.age(5.0) == 4.0
    assert record.take() is one
    assert record.age(5.0) == 3.0
    assert record.take() is two
    assert not record.any_pending
    assert record.take() is None


@pytest.mark.parametrize("threads", [1, 4])
def test_no_number_is_used_twice(threads: int) -> None:
    """REL-1, REL-19: entries of one process never share a field."""
    numbers = SequenceNumbers()
    got: list[range] = []

    def reserve() -> None:
        for count in range(1, 200):
            got.append(numbers.reserve(count))

    running = [threading.Thread(target=reserve) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(10)
    flat = sorted(number for each in got for number in each)
    assert flat == list(range(1, len(flat) + 1))
    assert len(flat) == threads * sum(range(1, 200))


JOBS = [InFlightJob(f"{n}:q", "q", b"{}") for n in range(5)]


def test_jobs_start_in_order_while_slots_are_free() -> None:
    """FETCH-2: the oldest job starts first, and occupies its slot until it is released."""
    slots = Slots(2)
    buffer = Buffer(slots, lifetime=5.0)
    assert buffer.take(0.0) is None
    buffer.add(JOBS[:3], fetched_at=0.0)
    assert [buffer.take(0.0), buffer.take(0.0), buffer.take(0.0)] == [*JOBS[:2], None]
    assert (slots.in_use, slots.free, len(buffer)) == (2, False, 1)
    slots.release()
    assert buffer.take(0.0) is JOBS[2]
    assert len(buffer) == 0


def test_jobs_that_are_too_old_do_not_start() -> None:
    """REL-3: other processes may have recovered them."""
    buffer = Buffer(Slots(2), lifetime=5.0)
    buffer.add(JOBS[:1], fetched_at=10.0)
    buffer.add(JOBS[1:2], fetched_at=14.0)
    assert buffer.age(14.0) == 4.0
    assert buffer.take(15.0) is None
    assert buffer.clear() == JOBS[:2]
    assert (len(buffer), buffer.age(15.0), buffer.take(10.0)) == (0, None, None)


def test_the_age_is_that_of_the_oldest_job() -> None:
    buffer = Buffer(Slots(5), lifetime=5.0)
    buffer.add(JOBS[:1], fetched_at=0.0)  # time 0 is a valid time
    assert buffer.age(1.0) == 1.0
    assert buffer.take(1.0) is JOBS[0]
    assert buffer.age(1.0) is None
    buffer.add(JOBS[1:], fetched_at=7.0)
    assert buffer.age(8.0) == 1.0


def test_a_slot_that_is_not_in_use_cannot_be_released() -> None:
    slots = Slots(1)
    with pytest.raises(RuntimeError, match="none of 1 slots is in use"):
        slots.release()
    assert slots.in_use == 0
