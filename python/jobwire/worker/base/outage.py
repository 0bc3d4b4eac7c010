"""Work that goes on after any error: log lines when trouble begins and ends. [ENV-6] [SRV-2]"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from types import TracebackType

from jobwire.errors import RedisTrouble

__all__ = ["Outage", "next_pause"]

FIRST = 0.05  # seconds before the second try: most troubles are a connection that was cut
MAX_PAUSE_S = 2.0  # seconds between tries, at most
LASTING = ("WRONGTYPE", "NOPERM")  # refusals that go on until a person has done something
UNKNOWN_S = 6.0  # without a try, after which the end of the outage is not known well enough

_log = logging.getLogger("jobwire.worker")


def next_pause(lasted: float, *, jitter: float) -> float:
    """Return how long to wait before the next try, in seconds. [ENV-11]

    Pauses grow with the outage: one that has lasted a second may well last another. Jitter
    spreads them, so that all workers do not reach a restarted server at once.

    Args:
        lasted: Seconds since the first failure.
        jitter: Uniform draw in [0, 1).
    """
    return min(max(lasted, FIRST), MAX_PAUSE_S) * (0.5 + jitter / 2)


class Outage:
    """A context for one try of work that is retried for as long as the process lives.

    Swallows any error, after a pause that `stop` cuts short and that grows while the trouble
    lasts. `RedisTrouble` gets one log line when it begins and one when it is over, with the time in
    between, and one more if it turns into one of `LASTING`. Work with intervals of its own may try
    again long after Redis came back; then the line says that the time is the most that it can have
    been. Any other error is a bug, and gets its traceback each time. Threads may share one.

    Args:
        doing: Name of the work, for the log.
        stop: Ends every pause.
        pause: Seconds that a pause takes at most; 0 if the work has intervals of its own.
        clock: Returns monotonic seconds.
    """

    def __init__(
        self,
        doing: str,
        stop: threading.Event,
        *,
        pause: float = MAX_PAUSE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._doing = doing
        self._stop = stop
        self._longest = pause
        self._clock = clock
        self._lock = threading.Lock()  # Guards that one thread reports each change of `_since`.
        self._since: float | None = None  # written under `_lock`
        self._reported = ""  # written under `_lock`; the one of `LASTING` in the log
        self._failed_at = 0.0  # the last failure of an outage

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None:
            self.over()
            return False
        if not isinstance(error, Exception):
            return False
        now = self._clock()
        since = self._since
        lasted = 0.0 if since is None else now - since
        if not isinstance(error, RedisTrouble):
            _log.error("%s failed, which is a bug", self._doing, exc_info=error)
            lasted = 1.0
        else:
            self._failed_at = now
            lasting = next((code for code in LASTING if code in str(error)), "")
            if self._begin(now, lasting):
                _log.error("%s failed and is retried: %s", self._doing, error)
        self._stop.wait(min(next_pause(lasted, jitter=random.random()), self._longest))
        return True

    def over(self, at: float | None = None) -> None:
        """Log the end of the outage, if there is one. For work that goes on with a wait.

        Args:
            at: When Redis could be used again, if that was before this moment; monotonic seconds.
        """
        if self._since is None:
            return
        since = self._end()
        if since is None:
            return
        usable_at = self._clock() if at is None else at
        unknown = usable_at - self._failed_at
        _log.info(
            "%s again, after %.1f s%s",
            self._doing,
            max(usable_at - since, 0.0),
            f" at most (it last failed {unknown:.1f} s before)" if unknown > UNKNOWN_S else "",
        )

    def _begin(self, now: float, lasting: str) -> bool:
        """Record the time of the first failure; return True if the log needs a line."""
        with self._lock:
            first = self._since is None
            if first:
                self._since = now
            new = first or lasting not in ("", self._reported)
            if new:
                self._reported = lasting
            return new

    def _end(self) -> float | None:
        """Return when the outage began, to the first thread that asks; None to all others."""
        with self._lock:
            since, self._since = self._since, None
            return since
