"""Background work that goes on whatever happens: one log line down, one line up. [ENV-6]"""

from __future__ import annotations

import logging
import threading
import time
from types import TracebackType

from jobwire.errors import RedisTrouble

__all__ = ["Outage"]

PAUSE = 1.0  # seconds between tries

_log = logging.getLogger("jobwire.worker")


class Outage:
    """A context for one try of something that is tried again for as long as the process lives.

    Swallows any error, after a pause that `stop` cuts short. `RedisTrouble` gets one line when
    it begins and one when it is over; anything else is a bug, and gets its traceback each time.
    """

    def __init__(self, doing: str, stop: threading.Event, *, pause: float = PAUSE) -> None:
        self._doing = doing
        self._stop = stop
        self._pause = pause
        self._since: float | None = None

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None:
            if self._since is not None:
                _log.info("%s again, after %.1f s", self._doing, time.monotonic() - self._since)
                self._since = None
            return False
        if not isinstance(error, Exception):
            return False
        if not isinstance(error, RedisTrouble):
            _log.error("%s failed, which is a bug", self._doing, exc_info=error)
        elif self._since is None:
            self._since = time.monotonic()
            _log.error("%s failed and is tried again: %s", self._doing, error)
        self._stop.wait(self._pause)
        return True
