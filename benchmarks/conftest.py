"""A server for each benchmark, empty and its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.servers import Reaper, Server, valkey_program


@pytest.fixture
def server() -> Iterator[Server]:
    with Reaper() as reaper:
        server = Server(reaper, valkey_program())
        yield server
        server.close()
