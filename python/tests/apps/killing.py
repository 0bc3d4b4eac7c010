"""An application with a job that kills its process."""

from __future__ import annotations

import os
import signal

from jobwire import App

app = App()


@app.job(name="Kill")
def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(name="Note")
def note() -> None:
    pass
