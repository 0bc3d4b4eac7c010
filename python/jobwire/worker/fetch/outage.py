"""Background work that goes on whatever happens: one log line down, one line up. [ENV-6]"""

from __future__ import annotations

import logging
import random
import threading
import time
from types import TracebackType

from jobwire.errors import RedisTrouble

__all__ = ["Outage", "next_pause"]

FIRST = 0.05  # seconds before the second try: most troubles are a connection that was cut
LONGEST = 5.0  # seconds between tries, however long it lasts

_log = logging.getLogger("jobwire.worker")


def next_pause(lasted: float, *, jitter: float) -> float:
    """Return how long to wait before the next try, in seconds. [ENV-6]

    In step with the outage: what has lasted a second may well last another. Spread, so that a
    server that is back does not meet all of its workers at once.

    Args:
        lasted: Seconds since the first failure.
        dice: Uniform draw in [0, 1).
    """
    return min(max(lasted, FIRST), LONGEST) * (0.5 + jitter / 2)


class Outage:
    """A context for one try of something that is tried again for as long as the process lives.

    Swallows any error, after a pause that `stop` cuts short and that grows while the trouble
    lasts. `RedisTrouble` gets one line when it begins and one when it is over; anything else is a
    bug, and gets its traceback each time. Threads may share one.

    Args:
        doing: What fails, for the log.
        stop: Ends every pause.
        pause: Seconds that a pause may take at most; 0 where the work has a rhythm of its own.
    """

    def __init__(self, doing: str, stop: threading.Event, *, pause: float = LONGEST) -> None:
        self._doing = doing
        self._stop = stop
        self._longest = pause
        self._since: float | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        since = self._since
        if error is None:
            if since is not None:
                self._since = None
                _log.info("%s again, after %.1f s", self._doing, time.monotonic() - since)
            return False
        if not isinstance(error, Exception):
            return False
        lasted = 0.0 if since is None else time.monotonic() - since
        if not isinstance(error, RedisTrouble):
            _log.error("%s failed, which is a bug", self._doing, exc_info=error)
            lasted = 1.0
        elif since is None:
            self._since = time.monotonic()
            _log.error("%s failed and is tried again: %s", self._doing, error)
        self._stop.wait(min(next_pause(lasted, jitter=random.random()), self._longest))
        return True
