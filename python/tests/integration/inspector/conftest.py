"""Both inspectors, with the methods of the blocking one."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from harness.servers import Server
from jobwire.inspect import AsyncInspector, Inspector
from tests.integration.inspector.entries import NOW


class Blocking:
    """An `AsyncInspector` with the blocking methods of an `Inspector`."""

    def __init__(self, url: str, **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._inspector = AsyncInspector(url, **settings)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inspector, name)

        def call(*args: Any, **named: Any) -> Any:
            found = method(*args, **named)
            if hasattr(found, "__anext__"):
                return self._each(found)
            return self._loop.run_until_complete(found)

        return call

    def _each(self, found: Any) -> Iterator[Any]:
        while True:
            try:
                yield self._loop.run_until_complete(found.__anext__())
            except StopAsyncIteration:
                return

    def end(self) -> None:
        self._loop.run_until_complete(self._inspector.close())
        self._loop.close()


@pytest.fixture(params=["sync", "async"])
def inspector(request: pytest.FixtureRequest, server: Server) -> Iterator[Any]:
    if request.param == "sync":
        with Inspector(server.url, clock=lambda: NOW) as made:
            yield made
    else:
        face = Blocking(server.url, clock=lambda: NOW)
        yield face
        face.end()


@pytest.fixture
def client(server: Server) -> Any:
    return server.client()
