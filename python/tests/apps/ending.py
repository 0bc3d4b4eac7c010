"""An application with jobs that kill their process, or ignore every request to end."""

from __future__ import annotations

import logging
import os
import signal
import time

from jobwire import App, Shutdown

app = App()


@app.job(name="Kill")
def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(name="Note")
def note() -> None:
    pass


@app.job(name="Babble")
def babble() -> None:
    """Write a log line each time."""
    while True:
        try:
            logging.getLogger("babble").warning("still here")
            time.sleep(0.0001)  # otherwise the log fills the disk
        except Shutdown:
            pass
