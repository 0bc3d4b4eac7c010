"""jobwire.worker.base.ticker: checks are called while they request it, and after a wake."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from harness.servers import wait_until
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
