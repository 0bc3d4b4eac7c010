"""Fixtures of the tests with a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.integration.clients import KINDS, Connect, connecting


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Yield a function that makes a client: blocking, then asyncio."""
    with connecting(request.param) as make:
        yield make
