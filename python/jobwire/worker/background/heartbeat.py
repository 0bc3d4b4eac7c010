"""The heartbeat thread: renews the lease, shows running jobs, recovers jobs. [BEAT-1] [REL-5]"""

from __future__ import annotations

import logging
import resource
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from jobwire.connection.connect import safe_url
from jobwire.connection.sync import SyncRedis
from jobwire.errors import RedisTrouble
from jobwire.protocol.heartbeat import HeartbeatSample, Work, beat, prune, retire
from jobwire.protocol.keys import Keys
from jobwire.protocol.reliable import recover, resign
from jobwire.protocol.wire import command, once
from jobwire.worker.background.lifelock import LifeLock
from jobwire.worker.fetch.outage import Outage
from jobwire.worker.fetch.timings import DEFAULT_TIMINGS, Timings

__all__ = ["HeartbeatThread", "rss"]

_log = logging.getLogger("jobwire.worker")


class HeartbeatThread:
    """Beats once at its start, then every ten seconds.

    Args:
        redis: The Redis to use.
        keys: Key names.
        identity: Identity of this process.
        info: The static part of the heartbeat.
        concurrency: Number of jobs that the process runs at the same time.
        works: Returns the running jobs, by thread id.
        quiet: Returns True if fetching has stopped.
        on_signal: Called with the name of a signal that came through Redis. [SIG-4]
        on_beat: Called with every beat, for other regular work.
        recovers: True to put back jobs of dead processes. [REL-4]
        timings: Intervals and timeouts.

    Attributes:
        turned: Monotonic time at which the last round of the thread began. A round may fail, for
            example if Redis is down, but it must end.
    """

    def __init__(
        self,
        redis: SyncRedis,
        keys: Keys,
        identity: str,
        *,
        info: bytes,
        concurrency: int,
        works: Callable[[], Mapping[str, Work]],
        quiet: Callable[[], bool],
        on_signal: Callable[[str], None],
        on_beat: Callable[[], None],
        recovers: bool,
        timings: Timings = DEFAULT_TIMINGS,
    ) -> None:
        self._timings = timings
        self._redis = redis
        self._keys = keys
        self._identity = identity
        self._info = info
        self._concurrency = concurrency
        self._works = works
        self._quiet = quiet
        self._on_signal = on_signal
        self._on_beat = on_beat
        self._recovers = recovers
        self._life = LifeLock(identity, scope=f"{safe_url(redis.url)} {keys.namespace}")
        self._stop = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._outage = Outage("heartbeat", self._stop, pause=0.0)
        self.turned = time.monotonic()
        self._thread = threading.Thread(target=self._run, name="jobwire-heart", daemon=True)

    def start(self) -> None:
        """Beat once, raising if Redis cannot be used, then start the thread."""
        if self._recovers:
            self._life.hold()  # before the process holds jobs that others could recover
        try:
            self.beat()
            self._look_after()
        except BaseException:
            self._life.release()
            raise
        self._thread.start()

    def beat(self) -> None:
        """Renew the lease now. [REL-3]"""
        with self._one_at_a_time:
            if self._stop.is_set():
                return
            sent_at = time.perf_counter()
            self._redis.run(once(command("PING")))
            sample = HeartbeatSample(
                now=time.time(),
                works=self._works(),
                quiet=self._quiet(),
                rss=rss(),
                rtt_us=int((time.perf_counter() - sent_at) * 1e6),
            )
            signal = self._redis.run(
                beat(self._keys, self._identity, self._info, self._concurrency, sample)
            )
        if signal is not None:
            self._on_signal(signal)

    def close(self) -> None:
        """Stop beating and leave the set of processes. [BEAT-7]"""
        self._stop.set()
        try:
            with self._one_at_a_time:  # a beat under way would add the process again
                self._redis.run(retire(self._keys, self._identity))
                if self._recovers:
                    self._redis.run(resign(self._keys, self._identity, now=time.time()))
                    self._life.release()
        finally:
            if self._thread.is_alive():
                # Otherwise the thread might open connections again.
                self._thread.join(self._timings.heartbeat_stop_timeout)

    def _run(self) -> None:
        while not self._stop.wait(self._timings.heartbeat_interval):
            self.turned = time.monotonic()
            with self._outage:
                self.beat()
                self._look_after()

    def _look_after(self) -> None:
        self._on_beat()
        if self._stop.is_set():
            return
        if forgotten := self._redis.run(prune(self._keys)):
            _log.info("removed %d processes whose heartbeat expired", forgotten)
        if self._recovers:
            self._recover()

    def _recover(self) -> None:
        ended = self._life.ended()
        recovered = self._redis.run(
            recover(self._keys, own=self._identity, now=time.time(), ended=ended)
        )
        for identity, count in recovered.items():
            _log.warning("put back %d jobs of dead process %s", count, identity)
        for identity in ended:
            self._life.forget(identity)

    def leave_quietly(self) -> None:
        """Close, and log a failure instead of raising it."""
        try:
            self.close()
        except RedisTrouble as error:
            _log.warning("cannot leave the set of processes: %s", error)


def rss() -> int:
    """Return the resident memory in KiB; its peak on a system that gives only that."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak // 1024 if sys.platform == "darwin" else peak
    line = next((line for line in status.splitlines() if line.startswith("VmRSS:")), "0 0")
    return int(line.split()[1])
