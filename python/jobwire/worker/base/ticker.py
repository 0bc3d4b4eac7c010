"""The thread that calls periodic checks, which must not wait for a thread that runs jobs."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Protocol, TypeAlias

__all__ = ["PeriodicCheck", "PeriodicChecks", "Ticker"]

STOP_TIMEOUT_S = 1.0

PeriodicCheck: TypeAlias = Callable[[], float | None]
"""Checks something; returns in how many seconds to call it again, None for not before `wake`."""


class PeriodicChecks(Protocol):
    """The thread that calls periodic checks. One per process.

    Attributes:
        awake: True if all checks are called every few milliseconds now.
    """

    @property
    def awake(self) -> bool: ...

    def add_periodic_check(self, check: PeriodicCheck) -> None:
        """Have a check called after each `wake`, and again after as many seconds as it returns."""

    def wake(self) -> None:
        """Have all checks called soon."""


_log = logging.getLogger("jobwire.worker")


class Ticker:
    """Calls every check once a tick while one of them asks for that; sleeps otherwise.

    Args:
        tick: Seconds between two calls while it is awake.
        pause_after_bug: Seconds without checks after one has raised.

    Attributes:
        awake: Whether all checks are called within the next tick. Written under `_lock`. A
            thread that reads it without that lock has to do as `SharedLead.starting` does: first
            change what a check looks at, under the lock that the check takes, and then read it.
    """

    def __init__(self, *, tick: float, pause_after_bug: float = 1.0) -> None:
        self._tick = tick
        self._pause_after_bug = pause_after_bug
        self._stop = threading.Event()
        self._lock = threading.Lock()  # Guards `awake` (writes), `_woken`, `_checks`.
        self._changed = threading.Condition(self._lock)
        self.awake = False
        self._woken = False  # guarded by `_lock`
        self._checks: tuple[PeriodicCheck, ...] = ()  # guarded by `_lock`
        self._rounds = 0
        self._checking = False
        self._thread = threading.Thread(target=self._run, name="jobwire-ticker", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Call no more checks."""
        self._stop.set()
        self.wake()
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT_S)

    def step(self) -> int | None:
        """Return the number of the round that goes on; None while the ticker waits."""
        return self._rounds if self._checking else None

    def add_periodic_check(self, check: PeriodicCheck) -> None:
        """Have a check called after each `wake`, and again after as many seconds as it returns."""
        with self._lock:
            self._checks += (check,)

    def wake(self) -> None:
        """Have all checks called soon."""
        with self._lock:
            if not self.awake:
                self._woken = True
                self._changed.notify()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._round()
            except Exception:  # noqa: BLE001 - ours, and the thread must live
                _log.exception("a periodic check failed, which is a bug; the ticker goes on")
                self._stop.wait(self._pause_after_bug)

    def _round(self) -> None:
        delay = self._check_all()
        if delay is None or delay > self._tick:
            with self._lock:
                self.awake = False
            # A thread that still saw it awake has left something for the checks to find.
            delay = self._check_all()
        with self._lock:
            short = delay is not None and delay <= self._tick
            if not (short or self._woken or self._stop.is_set()):
                self._changed.wait(delay)
            self.awake = True
            self._woken = False
        if short:
            self._stop.wait(delay)

    def _check_all(self) -> float | None:
        """Call the checks; return in how many seconds to do it again."""
        with self._lock:
            checks = self._checks
        self._rounds += 1
        self._checking = True
        delays = [check() for check in checks]
        self._checking = False
        return min((delay for delay in delays if delay is not None), default=None)
