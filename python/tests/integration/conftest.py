"""Fixtures of the tests with a server."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.clients import KINDS, Connect, connecting

# The SDK of OpenTelemetry. redis-py, which is loaded by now, would load it; and no process that a
# test starts has this path.
sys.path.append(str(Path(__file__).resolve().parents[3] / ".venv/traces"))


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Yield a function that makes a client: blocking, then asyncio."""
    with connecting(request.param) as make:
        yield make
