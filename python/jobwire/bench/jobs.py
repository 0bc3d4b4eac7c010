"""The jobs that are measured."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from jobwire.application.app import App

__all__ = ["WAIT", "make_app"]

WAIT = 0.01  # seconds that a job of the I/O-bound kinds waits


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
        time.sleep(WAIT)

    @app.job(name="AsyncWaiting")
    async def async_waiting(number: int) -> None:
        await asyncio.sleep(WAIT)

    @app.job(name="Lone")
    def lone(sent: float) -> None:
        """Tell the bench how long ago it was enqueued."""
        say({"seconds": time.time() - sent})

    return app


def say(words: dict[str, float]) -> None:
    """Write a line to the process that started this one."""
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()
