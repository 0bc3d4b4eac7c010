"""The thread that learns of cancelled jobs: one connection that waits for notices. [X-CANCEL-3]"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from jobwire.connection.sync import SyncRedis
from jobwire.connection.watch import Watch
from jobwire.errors import RedisRefused, RedisTrouble
from jobwire.protocol.cancelling import marked
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Batch, ErrorReply, Op, once
from jobwire.worker.base.timings import Timings

__all__ = ["Canceller"]

POLL_INTERVAL_S = 0.5  # between reads of a server that cannot send notices
SAFETY_INTERVAL_S = 60.0  # between reads without a notice, in case one was lost
LATEST_S = 90.0  # after which the thread reads by itself, because no heartbeat has
_log = logging.getLogger("jobwire.worker")


class Canceller:
    """Reads the marks of cancelled jobs when they change, and passes them on.

    Args:
        redis: The server, read directly if it cannot send notices.
        keys: Key names.
        tell: Called with the ids of the cancelled jobs, if there are any.
        timings: How often waits look whether to stop.

    Attributes:
        watch: The connection that waits for notices; another thread may be its guest.
    """

    def __init__(
        self,
        redis: SyncRedis,
        keys: Keys,
        tell: Callable[[Collection[str]], None],
        timings: Timings,
    ) -> None:
        self._redis = redis
        self._keys = keys
        self._tell = tell
        self._stop = threading.Event()
        interval = timings.stop_check_interval
        self.watch = Watch(redis.url, self._stop, stop_check_interval=interval)
        self._pause = timings.longest_outage_pause
        self._told = False
        self._members: Collection[bytes] = ()  # of the last read
        self._looked_at = 0.0  # monotonic; of the last look, also one with a heartbeat; 0: none
        self._reported = ""  # refusal in the log
        self._thread = threading.Thread(target=self._run, name="jobwire-cancel", daemon=True)

    def start(self) -> None:
        """Read the marks, so that no marked job starts; then start the thread."""
        with suppress(RedisTrouble):  # the thread tries again
            self._pass_on(self._redis.run(once(marked(self._keys, now=time.time()))))
        self._thread.start()

    def look(self) -> Op[None]:
        """Wake the thread if a notice was lost; for a message that is sent in any case."""
        now = time.monotonic()
        if self._looked_at and now >= self._looked_at + SAFETY_INTERVAL_S:
            (members,) = yield Batch([marked(self._keys, now=time.time())])
            if isinstance(members, ErrorReply):
                return  # the thread will meet the same error and report it
            self._looked_at = now
            if set(members) != set(self._members):
                self.watch.wake()

    def stop(self) -> None:
        """Have the thread end soon; no job is left to cancel."""
        self._stop.set()

    def close(self, timeout: float) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self.watch.tracking:
                    self._look()
                else:
                    self._pass_on(self._redis.run(once(marked(self._keys, now=time.time()))))
                    self._stop.wait(POLL_INTERVAL_S)
            except RedisRefused as error:
                self.watch.close()
                if self.watch.tracking:
                    self.watch.tracking = False  # from now on, poll
                    continue
                if str(error) != self._reported:
                    self._reported = str(error)
                    _log.error("cancelled jobs cannot be read: %s", error)
                self._stop.wait(self._pause)
            except RedisTrouble:  # the heartbeat meets the same trouble and reports it
                self.watch.close()
                self._stop.wait(self._pause)
        self.watch.close()

    def _look(self) -> None:
        self._looked_at = time.monotonic()
        (self._members,) = self.watch.ask([marked(self._keys, now=time.time()).args])
        self._pass_on(self._members)
        while not (self.watch.noticed or self._stop.is_set()):
            left = self._looked_at + LATEST_S - time.monotonic()
            if left <= 0:
                break
            self.watch.wait(left)

    def _pass_on(self, members: Collection[bytes]) -> None:
        if members or self._told:
            self._told = bool(members)
            self._tell(frozenset(member.decode("utf-8", "replace") for member in members))
