"""A thread that writes the jobs of an outbox, for rows whose process could not do it."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable
from types import FrameType

from jobwire.application.app import App
from jobwire.errors import RedisTrouble

__all__ = ["Relay"]

INTERVAL_S = 5.0

_log = logging.getLogger("jobwire.outbox")


class Relay:
    """Runs in each worker of an application, from its start to its end.

    Several relays at a time write each job once, because the one that deletes the row does it.

    Args:
        send_all: Writes the jobs that are due; returns their number.
        release: Closes the connections of this thread to the database.
    """

    def __init__(self, send_all: Callable[[], int], release: Callable[[], None]) -> None:
        self._send_all = send_all
        self._release = release
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def attach(self, app: App) -> None:
        """Run in each worker of an application."""
        app.on("startup")(self.start)
        app.on("quiet")(self.stop)
        app.on("shutdown")(self.stop)

    def start(self) -> None:
        """Start the thread."""
        self._end.clear()
        self._thread = threading.Thread(target=self.run, name="jobwire-relay", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread after the batch that it writes."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def serve(self) -> None:
        """Run as a process of its own, in the main thread, until SIGTERM or SIGINT."""

        def stop(number: int, frame: FrameType | None) -> None:
            self._end.set()

        signal.signal(signal.SIGTERM, stop)
        signal.signal(signal.SIGINT, stop)
        self.run()

    def run(self) -> None:
        """Write what is due, again and again, until `stop`."""
        trouble = ""
        while not self._end.is_set():
            said = trouble
            try:
                sent = self._send_all()
                trouble = ""
                if sent:
                    _log.info("jobs written from the outbox: %d", sent)
            except RedisTrouble as error:
                trouble = str(error)
            except Exception as error:  # noqa: BLE001 - any error of any database
                trouble = f"the table of the outbox cannot be used: {error}"
            finally:
                self._release()
            if trouble and trouble != said:  # once, not every five seconds
                _log.warning("jobs stay in the outbox: %s", trouble)
            self._end.wait(INTERVAL_S)
