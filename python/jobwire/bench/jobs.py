"""The jobs of the bench."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from jobwire.application.app import App

__all__ = ["JOB_WAIT_S", "make_app"]

JOB_WAIT_S = 0.01  # the time that an I/O-bound job waits


def make_app(url: str | None, namespace: str) -> App:
    """Return the application that a worker of the bench runs."""
    app = App(url, namespace=namespace)

    @app.job(name="Nothing")
    def nothing(number: int) -> None:
        pass

    @app.job(name="Failing")
    def failing(number: int) -> None:
        raise ValueError(number)

    @app.job(name="Waiting")
    def waiting(number: int) -> None:
        time.sleep(JOB_WAIT_S)

    @app.job(name="AsyncWaiting")
    async def async_waiting(number: int) -> None:
        await asyncio.sleep(JOB_WAIT_S)

    @app.job(name="Lone")
    def lone(sent: float) -> None:
        """Tell the bench the time since the job was enqueued."""
        say({"seconds": time.time() - sent})

    return app


def say(message: dict[str, float]) -> None:
    """Write a message to the process that started this one."""
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
