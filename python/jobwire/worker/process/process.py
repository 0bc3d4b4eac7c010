"""A worker as a process of its own: signals in, exit status out. [SIG-1] to [SIG-4]"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, NamedTuple

import jobwire
from jobwire.application.app import App
from jobwire.application.config import WorkerConfig
from jobwire.connection.connect import safe_url
from jobwire.protocol.heartbeat import PERIOD
from jobwire.protocol.server import ServerInfo
from jobwire.worker.background.heartbeat import rss
from jobwire.worker.fetch.timings import DEFAULT_TIMINGS, Timings
from jobwire.worker.process import notify
from jobwire.worker.process.launcher import Launcher
from jobwire.worker.process.notify import Notifier

__all__ = ["PATIENCE", "run"]

EXIT_CRASHED = 1
# The kernel may hand a signal to any thread, and only this one runs its handler: one that waits for
# ever would not hear of it.
HEED = 0.5  # seconds
PATIENCE = 30.0  # seconds beyond the timeout after which a stop that hangs is cut short
EXIT_FORCED = 1  # after a second TERM or INT
ASIDE = "worker"  # begins the names of threads that live to the very end and are in nobody's way:
# where others are left, whose names begin with jobwire, the process ends without Python's way out
STALE = 4 * PERIOD  # seconds after which a heart that has not come round counts as hanging

_log = logging.getLogger("jobwire.worker")
_HANDLED = ("TERM", "INT", "HUP", "TSTP", "TTIN", "USR2")


class _Signal(NamedTuple):
    name: str  # TERM
    number: int | None = None  # None: it came through Redis
    frame: FrameType | None = None


def run(
    app: App, config: WorkerConfig, *, source: str = "", timings: Timings = DEFAULT_TIMINGS
) -> int:
    """Run a worker until a signal ends it; return the exit status.

    Earlier handlers of the signals are called too, after what the worker does.

    Args:
        app: The jobs, and the Redis to use.
        config: How.
        source: Where the Redis URL came from, for the log.
        timings: How long the parts of the worker wait.

    Raises:
        UnfitServer, RedisTrouble: It could not start.
    """
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
        self._signals: SimpleQueue[_Signal | None] = SimpleQueue()  # None: stopped
        self._launcher = Launcher(
            app,
            config,
            on_signal=lambda name: self._signals.put(_Signal(name)),
            timings=timings,
        )
        self._earlier: dict[str, Callable[[int, FrameType | None], Any]] = {}
        self._state = ""  # what a status begins with
        self._stopping = False
        self._hangs = False
        self._status = EXIT_CRASHED

    def run(self, source: str) -> int:
        """Run until it has stopped; return the exit status."""
        for name in _HANDLED:
            self._trap(name)
        if threading.excepthook is threading.__excepthook__:
            threading.excepthook = _report_death
        _announce(self._launcher, self._launcher.start(), source)
        self._notifier.ready(self._describe())
        if self._notifier.supervised:
            threading.Thread(target=self._watch, name=f"{ASIDE}-watch", daemon=True).start()
        period = self._notifier.period
        if period is None and self._config.memory_limit:
            period = notify.PERIOD
        looked_at = time.monotonic()
        while True:
            try:
                received = self._signals.get(timeout=HEED if period is None else min(HEED, period))
            except Empty:
                if period is not None and time.monotonic() - looked_at >= period:
                    self._look()
                    looked_at = time.monotonic()
                continue
            if received is None:
                return self._status
            self._act(received.name)
            self._call_earlier(received)
            self._tell()

    def _trap(self, name: str) -> None:
        number = getattr(signal, f"SIG{name}", None)
        if number is None:
            _log.info("this system has no signal %s", name)
            return
        earlier = signal.getsignal(number)
        if name == "HUP" and earlier is signal.SIG_IGN:
            return  # nohup: to outlive the terminal is what was asked for
        if callable(earlier) and earlier is not signal.default_int_handler:
            self._earlier[name] = earlier
        signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Nothing but this here: a handler runs between any two bytecodes of the main thread.
        name = signal.Signals(number).name.removeprefix("SIG")
        # The supervisor decides on force for its processes: a service manager may have sent
        # them the same signal that the supervisor passes on.
        if self._stopping and name in ("TERM", "INT") and not self._notifier.supervised:
            os._exit(EXIT_FORCED)
        self._signals.put(_Signal(name, number, frame))

    def _act(self, name: str) -> None:
        match name:
            case "HUP" | "USR2" if self._notifier.supervised:
                pass  # meant for the supervisor
            case "TERM" | "INT" | "HUP":
                self._stop(name)
            case "TSTP":
                self._state = self._state or "quiet, "
                self._launcher.quiet()
            case "TTIN":
                self._launcher.dump()
            case "USR2":
                _log.warning("USR2 restarts the processes of --processes, this is one; ignored")
            case _:
                _log.warning("signal %.20r from Redis is not one of ours; ignored", name)

    def _call_earlier(self, received: _Signal) -> None:
        earlier = self._earlier.get(received.name)
        if earlier is None or received.number is None:
            return
        try:
            earlier(received.number, received.frame)
        except BaseException:  # noqa: BLE001 - the application's, which may well be sys.exit
            _log.warning("an earlier handler of %s raised", received.name, exc_info=True)

    def _stop(self, name: str) -> None:
        if self._stopping:
            return  # asked twice, not by signals; the first one is being done
        self._stopping = True
        self._state = "stopping, "
        again = "" if self._notifier.supervised else "; again to force"
        _log.info("%s: stopping, jobs have %g s%s", name, self._config.timeout, again)
        self._notifier.stopping(self._describe())
        # In a thread, so that signals are still heard, and so that it cannot keep us.
        threading.Thread(target=self._stop_launcher, name="jobwire-stop", daemon=True).start()
        limit = threading.Timer(self._config.timeout + PATIENCE, os._exit, [EXIT_CRASHED])
        limit.name, limit.daemon = f"{ASIDE}-limit", True
        limit.start()

    def _stop_launcher(self) -> None:
        try:
            self._launcher.stop()
            self._status = 0
        finally:
            self._signals.put(None)

    def _watch(self) -> None:
        self._notifier.wait_orphaned()
        _log.warning("the supervising process is gone")
        self._signals.put(_Signal("TERM"))

    def _look(self) -> None:
        """Give a sign of life, if there is one; look at the memory."""
        late = time.monotonic() - self._launcher.turned
        if late < STALE or self._stopping:
            self._notifier.alive()
            self._hangs = False
        elif not self._hangs:
            self._hangs = True
            _log.error("the heartbeat hangs since %.0f s; no more signs of life", late)
        self._tell()
        limit = self._config.memory_limit
        if limit and not self._notifier.supervised and not self._stopping:
            used = rss() // 1024
            if used > limit:
                _log.warning("%d MiB of memory are more than the limit, %d", used, limit)
                self._stop("memory_limit")

    def _tell(self) -> None:
        if self._notifier.period is not None:
            self._notifier.status(
                self._describe(), busy=len(self._launcher.works()), rss=rss() // 1024
            )

    def _describe(self) -> str:
        return f"{self._state}{len(self._launcher.works())} of {self._config.concurrency} busy"


def _report_death(thread: threading.ExceptHookArgs) -> None:
    """Log what ended a thread, ours or the application's; Python would print it between lines."""
    if thread.exc_value is not None and not isinstance(thread.exc_value, SystemExit):
        name = thread.thread.name if thread.thread else "?"
        _log.error("thread %s died", name, exc_info=thread.exc_value)


def _announce(launcher: Launcher, info: ServerInfo, source: str) -> None:
    config = launcher.config
    for name, capsule in config.capsules.items():
        queues = ", ".join(
            f"{queue} ({weight})" if weight else queue for queue, weight in capsule.queues.items()
        )
        _log.info("capsule %s: %d threads for %s", name, capsule.concurrency, queues)
    jobs = len(launcher.app.jobs)
    _log.info(
        "jobwire %s, process %s, %s fetch, %d kinds of jobs, %s %s at %s%s",
        jobwire.__version__,
        launcher.identity,
        config.fetch,
        jobs,
        info.product,
        info.version,
        safe_url(launcher.url),
        f" ({source})" if source else "",
    )
