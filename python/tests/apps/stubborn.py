"""A job that ignores every wish to end, and is not quiet about it."""

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
            time.sleep(0.0001)  # or the log fills the disk
        except Shutdown:
            pass
