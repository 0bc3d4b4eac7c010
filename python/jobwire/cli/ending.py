"""Commands that run until a signal ends them."""

from __future__ import annotations

import signal
from queue import Empty, SimpleQueue

__all__ = ["EndSignals"]

CHECK_INTERVAL_S = 0.5  # a signal that another thread of the process gets does not wake this one


class EndSignals:
    """Catches INT, TERM and HUP from now on, except HUP under nohup.

    A handler runs between any two bytecodes of the main thread, also while that holds the lock of
    an event that it waits for. So a handler must not set an event: it would wait for this lock for
    ever. The put of a simple queue takes no such lock.
    """

    def __init__(self) -> None:
        self._caught: SimpleQueue[int] = SimpleQueue()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, lambda caught, _: self._caught.put(caught))

    def wait(self) -> None:
        """Return after the first signal."""
        while True:
            try:
                self._caught.get(timeout=CHECK_INTERVAL_S)
            except Empty:
                continue
            return
