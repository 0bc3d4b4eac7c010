"""Operations of an admin on a server of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from harness.servers import Server
from jobwire.ops import Operations
from tests.integration.inspector.entries import NOW


@pytest.fixture
def operations(server: Server) -> Iterator[Operations]:
    with Operations(server.url, person="ada", role="admin", clock=lambda: NOW) as made:
        yield made


@pytest.fixture
def client(server: Server) -> Any:
    return server.client()
