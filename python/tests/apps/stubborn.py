"""A job that ignores every request to end, and writes a log line each time."""

from __future__ import annotations

import logging
import time

from jobwire import App, Shutdown

app = App()


@app.job(name="Babble")
def babble() -> None:
    while True:
        try:
            logging.getLogger("babble").warning("still here")
            time.sleep(0.0001)  # otherwise the log fills the disk
        except Shutdown:
            pass
