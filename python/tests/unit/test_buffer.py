"""jobwire.worker.fetch.buffer: jobs start in order, in free slots, unless they are too old."""

from __future__ import annotations

import pytest

from jobwire.protocol.reliable import InFlightJob
from jobwire.worker.fetch.buffer import Buffer, Slots

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
