"""A worker as a process: signals, reports and exit status. [SIG-1] to [SIG-4] [SIG-6]"""

from __future__ import annotations

import faulthandler
import logging
import math
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from io import TextIOWrapper
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, NamedTuple, TextIO

import msgspec

from jobwire.application.app import App
from jobwire.application.config import WorkerConfig
from jobwire.application.redis_url import RedisAddress
from jobwire.errors import RedisRefused, RedisTrouble, RedisUnreachable
from jobwire.protocol.heartbeat import BEAT_INTERVAL_S, LEASE_S
from jobwire.worker.background.heartbeat import rss
from jobwire.worker.base.outage import next_pause
from jobwire.worker.base.timings import DEFAULT_TIMINGS, Timings
from jobwire.worker.process import last_resort, notify
from jobwire.worker.process.announce import announce
from jobwire.worker.process.launcher import Launcher
from jobwire.worker.process.notify import REPORT_INTERVAL_S, Notifier, RedisPlace, Report

__all__ = ["HEARTBEAT_STUCK_S", "STOP_GRACE_S", "run"]

EXIT_CRASHED = 1
EXIT_FORCED = 1  # after a second TERM or INT
# The kernel may deliver a signal to any thread, but only the main thread runs its handler. So the
# main thread wakes up regularly.
SIGNAL_CHECK_INTERVAL_S = 0.5
STOP_CHECK_INTERVAL_S = 0.1  # the same, while a thread looks for Redis
STOP_GRACE_S = 15.0  # beyond the timeout, after which a stop that hangs is cut short
ABANDON_S = 3.0  # of it, in which jobs are put back without the parts that hang
HEARTBEAT_STUCK_S = 4 * BEAT_INTERVAL_S  # without a round of the heartbeat thread
# Prefix of the names of threads that live to the end of the process and do not hinder its exit.
# If threads named "jobwire..." are left, the process exits without Python's clean-up.
DAEMON_PREFIX = "worker"
WAIT_LOG_INTERVAL_S = 30.0  # between two log lines of a worker that waits for Redis

_log = logging.getLogger("jobwire.worker")
_HANDLED = ("TERM", "INT", "HUP", "TSTP", "TTIN", "USR2")
_BY_REDIS = ("TERM", "INT", "TSTP", "TTIN")  # and no others [SIG-6] [SIG-10]


class _Signal(NamedTuple):
    name: str  # such as TERM
    number: int | None = None  # None for a signal through Redis
    frame: FrameType | None = None


def run(
    app: App, config: WorkerConfig, *, source: str = "", timings: Timings = DEFAULT_TIMINGS
) -> int:
    """Run a worker until a signal ends it; return the exit status.

    Handlers that were set before are called after the worker has handled a signal.

    Args:
        app: The jobs, and the Redis to use.
        config: The settings of the worker.
        source: Source of the Redis URL, for the log.
        timings: Intervals and timeouts of the worker.

    Raises:
        UnfitServer, RedisTrouble: The worker could not start.
        ConfigError: A port cannot be used.
    """
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # so that `print` in a job shows at once
    return _Process(app, config, Notifier(os.environ), timings).run(source)


class _Process:
    def __init__(
        self,
        app: App,
        config: WorkerConfig,
        notifier: Notifier,
        timings: Timings = DEFAULT_TIMINGS,
    ) -> None:
        self._config = config
        self._notifier = notifier
        self._signals: SimpleQueue[_Signal | None] = SimpleQueue()  # None: the worker has stopped
        notifier.shards(app.shards if app.served in app.shards else ())
        self._launcher = Launcher(
            app,
            config,
            on_signal=self._on_redis_signal,
            on_broken=self._on_broken,
            timings=timings,
        )
        if app.served in app.shards and (app.periodic_entries or config.schedule):
            notifier.ticks(app.shard_epoch)
        self._earlier: dict[str, Callable[[int, FrameType | None], Any]] = {}
        self._state = ""  # first word of the status, if any
        self._started = False
        self._stopping = False
        self._is_stuck = False
        self._is_broken = False
        self._nowhere: TextIO | None = None  # while the process runs
        self._status = EXIT_CRASHED
        self._has_ports = (config.health_port or config.metrics_port) is not None
        self._reports = self._has_ports and notifier.supervised
        self._reported_at = -math.inf  # monotonic

    def run(self, source: str) -> int:
        """Run until the worker has stopped; return the exit status.

        Raises:
            ConfigError: A port cannot be used.
        """
        for name in _HANDLED:
            self._trap(name)
        if not self._notifier.supervised:
            wakeup_fd = last_resort.start(self._config.timeout + STOP_GRACE_S)
            if wakeup_fd is not None:
                signal.set_wakeup_fd(wakeup_fd, warn_on_full_buffer=False)
        with open(os.devnull, "w") as self._nowhere:
            try:
                return self._run_with_ports(source)
            finally:
                self._nowhere = None
                faulthandler.cancel_dump_traceback_later()

    def _run_with_ports(self, source: str) -> int:
        if not self._has_ports or self._notifier.supervised:
            return self._run(source)
        from jobwire.worker.process.monitor import Monitor, Sources

        monitor = Monitor(
            self._config,
            Sources(
                self._launcher.figures,
                self._not_live,
                self._not_ready,
                lambda: {"": self._redis_place()},
            ),
        )
        try:
            return self._run(source)
        finally:
            monitor.close()

    def _run(self, source: str) -> int:
        if threading.excepthook is threading.__excepthook__:
            threading.excepthook = _report_death
        if self._notifier.supervised:
            threading.Thread(target=self._watch, name=f"{DAEMON_PREFIX}-watch", daemon=True).start()
        if not self._wait_for_redis(source):
            return 0
        announce(self._launcher, self._launcher.start(), source)
        self._started = True
        self._report()
        self._notifier.ready(self._describe())
        period = self._notifier.period or notify.STATUS_INTERVAL_S
        timeout = min(SIGNAL_CHECK_INTERVAL_S, period)
        checked_at = time.monotonic()
        while True:
            self._report()
            try:
                received = self._signals.get(timeout=timeout)
            except Empty:
                if time.monotonic() - checked_at >= period:
                    self._check()
                    checked_at = time.monotonic()
                continue
            self._reported_at = -math.inf
            if received is None:
                self._report()
                return self._status
            self._act(received.name)
            self._call_earlier(received)
            self._report_status()

    def _wait_for_redis(self, source: str) -> bool:
        """Wait until Redis can be used, as its container may start later; False after a TERM.

        Raises:
            UnfitServer, RedisTrouble: Waiting does not help.
        """
        stops = ("TERM", "INT") if self._notifier.supervised else ("TERM", "INT", "HUP")
        began = time.monotonic()
        logged_at: float | None = None
        postponed: list[_Signal | None] = []
        while True:
            try:
                stop = self._check_server(stops, postponed)
            except RedisTrouble as error:
                if not _may_pass(error):
                    raise
                lasted = time.monotonic() - began
                if logged_at is None or lasted - logged_at >= WAIT_LOG_INTERVAL_S:
                    logged_at = lasted
                    _log.warning("waiting for Redis: %s%s", error, self._advice(error, source))
                    self._notifier.status("waiting for Redis")
                stop = self._next_stop(stops, postponed, next_pause(lasted, jitter=random.random()))
            else:
                if stop is None:
                    break
            if stop is not None:
                _log.info("%s: stopping, before Redis could be used", stop.name)
                self._notifier.stopping("stopping")
                self._call_earlier(stop)
                return False
        if logged_at is not None:
            _log.info("Redis can be used, after %.1f s", time.monotonic() - began)
        for received in postponed:
            self._signals.put(received)
        return True

    def _check_server(
        self, stops: Sequence[str], postponed: list[_Signal | None]
    ) -> _Signal | None:
        """Check the server; return the signal if one of `stops` comes first.

        In a thread: a server that accepts connections and does not answer must not delay a stop.
        """
        ended = threading.Event()
        errors: list[BaseException] = []

        def check() -> None:
            try:
                self._launcher.check_server()
            except BaseException as error:  # noqa: BLE001 - raised below
                errors.append(error)
            finally:
                ended.set()

        threading.Thread(target=check, name=f"{DAEMON_PREFIX}-check", daemon=True).start()
        while not ended.wait(STOP_CHECK_INTERVAL_S):
            if stop := self._next_stop(stops, postponed, 0.0):
                return stop
        if errors:
            raise errors.pop()
        return None

    def _next_stop(
        self, stops: Sequence[str], postponed: list[_Signal | None], timeout: float
    ) -> _Signal | None:
        """Return the next signal if it is one of `stops`; keep any other one for later."""
        try:
            received = self._signals.get(timeout=timeout) if timeout else self._signals.get_nowait()
        except Empty:
            return None
        if received is not None and received.name in stops:
            return received
        postponed.append(received)
        return None

    def _advice(self, error: RedisTrouble, source: str) -> str:
        if not source or not isinstance(error, RedisUnreachable):
            return ""
        return f"; {RedisAddress(self._launcher.url, source).advice()}"

    def _trap(self, name: str) -> None:
        number = getattr(signal, f"SIG{name}", None)
        if number is None:
            _log.info("this system has no signal %s", name)
            return
        earlier = signal.getsignal(number)
        if name == "HUP" and earlier is signal.SIG_IGN:
            return  # started by nohup, so it must outlive the terminal
        if callable(earlier) and earlier is not signal.default_int_handler:
            self._earlier[name] = earlier
        signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # As short as possible: a handler runs between any two bytecodes of the main thread.
        name = signal.Signals(number).name.removeprefix("SIG")
        # The supervisor decides if its processes are killed, because a service manager may send
        # them the same signal that the supervisor passes on.
        if self._stopping and name in ("TERM", "INT") and not self._notifier.supervised:
            os._exit(EXIT_FORCED)
        if name in ("TERM", "INT") and self._nowhere is not None:
            # In C, so that the process ends even if each thread waits for a lock of the log. The
            # stacks go nowhere, because the output may be what hangs.
            limit = self._config.timeout + STOP_GRACE_S
            faulthandler.dump_traceback_later(limit, exit=True, file=self._nowhere)
        self._signals.put(_Signal(name, number, frame))

    def _on_redis_signal(self, name: str) -> None:
        if name in _BY_REDIS:
            self._signals.put(_Signal(name))
        else:
            _log.warning("unknown signal %.20r from Redis; ignored", name)

    def _on_broken(self) -> None:
        self._is_broken = True
        self._signals.put(_Signal("TERM"))

    def _act(self, name: str) -> None:
        match name:
            case "HUP" | "USR2" if self._notifier.supervised:
                pass  # for the supervisor
            case "TERM" | "INT" | "HUP":
                self._stop(name)
            case "TSTP":
                self._state = self._state or "quiet, "
                self._launcher.quiet()
            case "TTIN":
                self._launcher.dump()
            case "USR2":
                _log.warning("USR2 restarts processes of --processes, there are none; ignored")

    def _call_earlier(self, received: _Signal) -> None:
        earlier = self._earlier.get(received.name)
        if earlier is None or received.number is None:
            return
        try:
            earlier(received.number, received.frame)
        except BaseException:  # noqa: BLE001 - a handler of the application may call sys.exit
            _log.warning(
                "the application's %s handler raised an exception", received.name, exc_info=True
            )

    def _stop(self, name: str) -> None:
        if self._stopping:
            return  # a second request, not by a signal; the stop is under way
        self._stopping = True
        self._state = "stopping, "
        # First of all, because writing to the log may hang.
        limit = threading.Timer(self._config.timeout + STOP_GRACE_S - ABANDON_S, self._abandon)
        limit.name, limit.daemon = f"{DAEMON_PREFIX}-limit", True
        limit.start()
        hint = "" if self._notifier.supervised else "; send it again to force"
        _log.info("%s: stopping, jobs have %g s%s", name, self._config.timeout, hint)
        self._notifier.stopping(self._describe())
        # In a thread, so that the main thread still handles signals, even if the stop hangs.
        threading.Thread(target=self._stop_launcher, name="jobwire-stop", daemon=True).start()

    def _abandon(self) -> None:
        """End this process, whose stop hangs."""
        threading.Timer(ABANDON_S, os._exit, [EXIT_CRASHED]).start()
        try:
            self._launcher.abandon()
        finally:
            os._exit(EXIT_CRASHED)

    def _stop_launcher(self) -> None:
        try:
            self._launcher.stop()
            self._status = EXIT_CRASHED if self._is_broken else 0
        finally:
            self._signals.put(None)

    def _watch(self) -> None:
        self._notifier.wait_orphaned()
        _log.warning("the supervising process has ended")
        self._signals.put(_Signal("TERM"))

    def _check(self) -> None:
        """Notify the watchdog unless the process hangs, which is logged; check the memory."""
        stuck = self._launcher.stuck()
        if not stuck or self._stopping:
            self._notifier.alive()
            self._is_stuck = False
        elif not self._is_stuck:
            self._is_stuck = True
            effect = ", so its watchdog is not notified" if self._notifier.watchdog else ""
            _log.error("%s; the process is no longer live%s", stuck, effect)
        self._report_status()
        limit = self._config.memory_limit
        if limit and not self._notifier.supervised and not self._stopping:
            used = rss() // 1024
            if used > limit:
                _log.warning(
                    "the process uses %d MiB of memory, above the limit of %d", used, limit
                )
                self._stop("memory_limit")

    def _report(self) -> None:
        """Tell the supervisor what its ports show, once a second."""
        now = time.monotonic()
        if self._reports and now - self._reported_at >= REPORT_INTERVAL_S:
            self._reported_at = now
            report = Report(
                self._launcher.figures(), self._not_live(), self._not_ready(), self._redis_place()
            )
            self._notifier.report(msgspec.json.encode(report))

    def _not_live(self) -> str:
        """Return the reason that this process must be restarted, or ""."""
        return "" if self._stopping or not self._started else self._launcher.stuck()

    def _not_ready(self) -> str:
        """Return the reason that this process fetches no jobs, or ""."""
        if self._stopping:
            return "stopping"
        if not self._started:
            return "starting"
        if not self._launcher.fetching:
            return "quiet"
        silent = self._launcher.seconds_since_heartbeat
        return f"no heartbeat in Redis for {silent:.0f} s" if silent > LEASE_S else ""

    def _redis_place(self) -> RedisPlace:
        return RedisPlace(self._launcher.url, self._launcher.app.namespace)

    def _report_status(self) -> None:
        app = self._launcher.app
        if app.served in app.shards:
            self._notifier.shards(app.served_shards, app.shard_epoch)
        if self._notifier.period is not None:
            self._notifier.status(
                self._describe(), busy=len(self._launcher.works()), rss=rss() // 1024
            )

    def _describe(self) -> str:
        return f"{self._state}{len(self._launcher.works())} of {self._config.concurrency} busy"


def _may_pass(error: RedisTrouble) -> bool:
    """True if Redis may accept the same command later. [ENV-6]"""
    if isinstance(error, RedisRefused):
        return error.temporary
    return not getattr(error, "refused", False)


def _report_death(thread: threading.ExceptHookArgs) -> None:
    """Log the error that ended a thread; Python would print it into the middle of the log."""
    if thread.exc_value is not None and not isinstance(thread.exc_value, SystemExit):
        name = thread.thread.name if thread.thread else "?"
        _log.error("thread %s died", name, exc_info=thread.exc_value)
