"""An ASGI application over real HTTP, in a thread of the test."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from harness.servers import wait_until

__all__ = ["Events", "served"]


@contextmanager
def served(app: Any, **settings: Any) -> Iterator[str]:
    """Serve an application; yield its URL without a slash at the end."""
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app, lifespan="off", log_level="critical", timeout_graceful_shutdown=1, **settings
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        wait_until(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(30)
        listener.close()


class Events:
    """The updates of one open page.

    Args:
        url: The page.
        **headers: More headers of the request.
    """

    def __init__(self, url: str, **headers: str) -> None:
        self._client = httpx.Client(timeout=10)
        self._stream = self._client.stream(
            "GET", url, headers={"accept": "text/event-stream", **headers}
        )
        self.answer = self._stream.__enter__()
        self._lines = self.answer.iter_lines()

    def next(self) -> dict[str, str]:
        """Return the parts of the next event."""
        for line in self._lines:
            if line.startswith("data: "):
                parts: dict[str, str] = json.loads(line.removeprefix("data: "))
                return parts
        raise EOFError

    def until(self, name: str, text: str) -> str:
        """Return a part as soon as it has a text."""
        while True:
            part = self.next().get(name)
            if part is not None and (text in part if text else not part):
                return part

    def close(self) -> None:
        """Close the page."""
        self._stream.__exit__(None, None, None)
        self._client.close()
