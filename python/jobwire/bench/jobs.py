"""The jobs of the bench, and a counter of the round trips of the process that runs them."""

from __future__ import annotations

import asyncio
import json
import sys
import time

from jobwire.application.app import App
from jobwire.connection.connection import AsyncConnection, Connection

__all__ = ["JOB_WAIT_S", "count_trips", "make_app"]

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


def count_trips() -> list[int]:
    """Count round trips from now on; return a list with one item, their number.

    The counters of the server would include the commands of all other clients.
    Those of the connection that waits for notices (`worker/fetch/wakeup.py`) do not count,
    because no job waits for them. Those whose reply is read later do count.
    """
    made = [0]
    send, flush = Connection.send, AsyncConnection._flush

    def counted_send(self: Connection, message: bytes) -> None:
        made[0] += 1
        send(self, message)

    def counted_flush(self: AsyncConnection) -> None:
        made[0] += 1
        flush(self)

    # Only the bench and its workers patch these classes, in their own processes.
    setattr(Connection, "send", counted_send)  # noqa: B010
    setattr(AsyncConnection, "_flush", counted_flush)  # noqa: B010
    return made
