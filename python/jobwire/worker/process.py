"""A worker as a process of its own: signals in, exit status out. [SIG-1] to [SIG-4]"""

from __future__ import annotations

import logging
import os
import signal
import threading
from queue import SimpleQueue
from types import FrameType

import jobwire
from jobwire._connect import safe_url
from jobwire.app import App
from jobwire.config import WorkerConfig
from jobwire.server import ServerInfo
from jobwire.worker.launcher import Launcher

__all__ = ["run"]

EXIT_CRASHED = 1
PATIENCE = 30.0  # seconds beyond the timeout after which a stop that hangs is cut short
EXIT_FORCED = 1  # after a second TERM or INT

_log = logging.getLogger("jobwire.worker")
_HANDLED = ("TERM", "INT", "TSTP", "TTIN")


def run(app: App, config: WorkerConfig, *, source: str = "") -> int:
    """Run a worker until a signal ends it; return the exit status.

    Args:
        app: The jobs, and the Redis to use.
        config: How.
        source: Where the Redis URL came from, for the log.

    Raises:
        UnfitServer, RedisTrouble: It could not start.
    """
    signals: SimpleQueue[str | None] = SimpleQueue()  # None: stopped
    stopping = False
    status = EXIT_CRASHED

    def on_signal(number: int, frame: FrameType | None) -> None:
        # Nothing but this here: a handler runs between any two bytecodes of the main thread.
        if stopping and number in (signal.SIGTERM, signal.SIGINT):
            os._exit(EXIT_FORCED)
        signals.put(signal.Signals(number).name.removeprefix("SIG"))

    def stop() -> None:
        nonlocal status
        try:
            launcher.stop()
            status = 0
        finally:
            signals.put(None)

    stopper = threading.Thread(target=stop, name="jobwire-stop", daemon=True)
    launcher = Launcher(app, config, on_signal=signals.put)
    for handled in _HANDLED:
        signal.signal(getattr(signal, f"SIG{handled}"), on_signal)
    _announce(launcher, launcher.start(), source)
    while True:
        name = signals.get()
        match name:
            case "TERM" | "INT":
                if stopping:
                    continue  # asked twice through Redis; the first one is being done
                stopping = True
                _log.info("%s: stopping, jobs have %g s; again to force", name, config.timeout)
                # In a thread, so that signals are still heard, and so that it cannot keep us.
                stopper.start()
                limit = threading.Timer(config.timeout + PATIENCE, os._exit, [EXIT_CRASHED])
                limit.daemon = True
                limit.start()
            case None:
                stopper.join()
                return status
            case "TSTP":
                launcher.quiet()
            case "TTIN":
                launcher.dump()
            case _:
                _log.warning("signal %.20r from Redis is not one of ours; ignored", name)


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
