"""jobwire.worker.base: checks that the ticker calls, and the pauses and lines of an outage."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from harness.servers import wait_until
from jobwire.errors import RedisRefused, RedisUnreachable
from jobwire.worker.base.outage import Outage, next_pause
from jobwire.worker.base.ticker import Ticker


@pytest.fixture
def ticker() -> Iterator[Ticker]:
    ticker = Ticker(tick=0.005)
    yield ticker
    ticker.close()


def test_it_sleeps_until_it_is_woken(ticker: Ticker) -> None:
    calls: list[int] = []
    ticker.add_periodic_check(lambda: calls.append(1))
    ticker.start()
    wait_until(lambda: calls and not ticker.awake)
    before = len(calls)
    ticker.wake()
    wait_until(lambda: len(calls) > before and not ticker.awake)
    assert len(calls) <= before + 4  # at most two rounds of two calls: the ticker sleeps again


def test_it_stays_awake_while_a_check_asks_for_it(ticker: Ticker) -> None:
    busy = threading.Event()
    busy.set()
    calls: list[int] = []

    def check() -> float | None:
        calls.append(1)
        return 0.001 if busy.is_set() else None

    ticker.add_periodic_check(check)
    ticker.start()
    wait_until(lambda: len(calls) > 20)
    assert ticker.awake
    busy.clear()
    wait_until(lambda: not ticker.awake)


def test_a_check_that_asks_for_later_is_called_then(ticker: Ticker) -> None:
    calls: list[int] = []

    def check() -> float:
        calls.append(1)
        return 0.02

    ticker.add_periodic_check(check)
    ticker.start()
    wait_until(lambda: len(calls) > 6)


def test_what_is_written_before_a_wake_is_seen_by_a_check(ticker: Ticker) -> None:
    """No wake gets lost, also while the ticker is about to sleep."""
    seen = threading.Event()
    work: list[int] = []

    def check() -> None:
        if work:
            work.clear()
            seen.set()

    ticker.add_periodic_check(check)
    ticker.start()
    for number in range(2_000):
        seen.clear()
        work.append(number)
        ticker.wake()
        assert seen.wait(10), number


def test_a_check_that_fails_ends_nothing(caplog: pytest.LogCaptureFixture) -> None:
    ticker = Ticker(tick=0.005, pause_after_bug=0.01)
    calls: list[int] = []

    def check() -> None:
        calls.append(1)
        if len(calls) == 1:
            raise ValueError("a bug")

    ticker.add_periodic_check(check)
    ticker.start()
    wait_until(lambda: len(calls) > 1)
    ticker.close()
    assert "a periodic check failed" in caplog.text


class Stop(threading.Event):
    """An event that records the timeouts of its waits, and returns at once."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout or 0.0)
        return False


@pytest.fixture
def now() -> list[float]:
    return [100.0]


def fail(trouble: Outage, error: Exception) -> None:
    with trouble:
        raise error


@pytest.mark.parametrize(
    ("lasted", "least", "most"),
    [(0.0, 0.025, 0.05), (1.0, 0.5, 1.0), (1.5, 0.75, 1.5), (3600.0, 1.0, 2.0)],
)
def test_pauses_grow_with_the_outage_and_are_spread(
    lasted: float, least: float, most: float
) -> None:
    """ENV-11: the first try is at once, later ones are rarer and spread."""
    assert next_pause(lasted, jitter=0.0) == pytest.approx(least)
    assert next_pause(lasted, jitter=1.0) == pytest.approx(most)


def test_a_line_down_and_a_line_up(caplog: pytest.LogCaptureFixture, now: list[float]) -> None:
    """ENV-6: one line at the first error, and one at the end with the duration."""
    caplog.set_level(logging.INFO)
    stop = Stop()
    trouble = Outage("fetching", stop, clock=lambda: now[0])
    for error in (RedisUnreachable("gone"), RedisRefused("LOADING x"), RedisRefused("OOM y")):
        fail(trouble, error)
        now[0] += 2
    for _ in range(2):
        with trouble:
            pass
    lines = [record.getMessage() for record in caplog.records]
    assert lines == ["fetching failed and is retried: gone", "fetching again, after 6.0 s"]
    assert stop.waited[0] <= 0.05
    assert 1 <= stop.waited[1] <= 2
    assert 1 <= stop.waited[2] <= 2  # the longest


def test_trouble_that_turns_into_a_lasting_one_gets_another_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """ENV-6, FETCH-7: a person has to mend the key, and learns its name."""
    trouble = Outage("heartbeat", Stop())
    texts = ["OOM x", "WRONGTYPE a", "WRONGTYPE a", "OOM x", "NOPERM b", "NOPERM b"]
    for text in texts:
        fail(trouble, RedisRefused(text))
    told = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert told == ["OOM x", "WRONGTYPE a", "NOPERM b"]


def test_the_end_of_an_outage_is_not_that_of_the_wait_after_it(
    caplog: pytest.LogCaptureFixture, now: list[float]
) -> None:
    """ENV-6: work that waits for a job states how long Redis could not be used."""
    caplog.set_level(logging.INFO)
    trouble = Outage("fetching", Stop(), clock=lambda: now[0])
    fail(trouble, RedisUnreachable("gone"))
    now[0] += 2
    with trouble:
        trouble.over()
        now[0] += 15
    fail(trouble, RedisUnreachable("gone"))
    with trouble:
        now[0] += 3
        trouble.over(now[0] - 2)
    ends = [record.getMessage() for record in caplog.records if "again" in record.getMessage()]
    assert ends == ["fetching again, after 2.0 s", "fetching again, after 1.0 s"]


def test_an_outage_whose_end_nobody_saw_is_an_upper_bound(
    caplog: pytest.LogCaptureFixture, now: list[float]
) -> None:
    """ENV-6: work that looks again after 18 s cannot tell when Redis came back."""
    caplog.set_level(logging.INFO)
    trouble = Outage("promoting", Stop(), clock=lambda: now[0])
    for pause in (3, 18):
        fail(trouble, RedisUnreachable("gone"))
        now[0] += pause
    with trouble:
        pass
    fail(trouble, RedisUnreachable("gone"))
    now[0] += 20
    trouble.over(now[0] - 15)  # known, from another place
    ends = [record.getMessage() for record in caplog.records if "again" in record.getMessage()]
    assert ends == [
        "promoting again, after 21.0 s at most (it last failed 18.0 s before)",
        "promoting again, after 5.0 s",
    ]


def test_a_bug_is_never_hidden_nor_hot(caplog: pytest.LogCaptureFixture) -> None:
    stop = Stop()
    trouble = Outage("fetching", stop)
    for _ in range(2):
        fail(trouble, ValueError("a bug"))
    assert len([record for record in caplog.records if record.exc_info]) == 2
    assert all(0.5 <= each <= 1 for each in stop.waited)


def test_work_with_a_rhythm_of_its_own_does_not_pause() -> None:
    stop = Stop()
    fail(Outage("heartbeat", stop, pause=0.0), RedisUnreachable("gone"))
    assert stop.waited == [0.0]


def test_what_interrupts_a_thread_is_let_through() -> None:
    """SIG-5: a hard stop is not an outage."""
    trouble: Any = Outage("fetching", Stop())
    with pytest.raises(KeyboardInterrupt), trouble:
        raise KeyboardInterrupt
