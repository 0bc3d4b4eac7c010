"""One log line when Redis goes, one when it is back."""

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
    """A context for one try of something that needs Redis and is tried again for ever.

    Swallows `RedisTrouble`, after a pause that `stop` cuts short.
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
        if not isinstance(error, RedisTrouble):
            return False
        if self._since is None:
            self._since = time.monotonic()
            _log.error("%s failed and is tried again every second: %s", self._doing, error)
        self._stop.wait(self._pause)
        return True
