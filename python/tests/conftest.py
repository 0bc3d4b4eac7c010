"""Fixtures: an empty real server for each test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Protocol

import pytest

from harness.servers import Reaper, Server, redis_program, valkey_program, wait_until
from jobwire.connection.sync import SyncRedis
from tests import connections, profiles

profiles.register()

# A shell script's background processes ignore SIGINT; processes that tests start would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

connections.watch()


class ServerFactory(Protocol):
    """Starts another server; `arguments` are added to its command line unchanged."""

    def __call__(
        self, *arguments: str, password: str | None = None, program: str | None = None
    ) -> Server: ...


@pytest.fixture(scope="session", autouse=True)
def _no_foreign_redis() -> None:
    """Remove the developer's own Redis settings from the environment."""
    for name in ("JOBWIRE_REDIS_URL", "REDIS_PROVIDER", "REDIS_URL"):
        os.environ.pop(name, None)


@pytest.fixture(autouse=True)
def _no_connection_left() -> Iterator[None]:
    """Fail a test that leaves a connection open, except those of longer-lived fixtures."""
    before = connections.open_now()
    yield
    with suppress(AssertionError):  # threads may be closing them right now
        wait_until(lambda: connections.open_now() <= before, 60)
    assert connections.open_now() - before == set()


@pytest.fixture(scope="session")
def _reaper() -> Iterator[Reaper]:
    reaper = Reaper()
    yield reaper
    reaper.close()


@pytest.fixture
def server_factory(_reaper: Reaper) -> Iterator[ServerFactory]:
    """Start Valkey servers with arguments and a password that the test chooses."""
    with ExitStack() as running:

        def factory(
            *arguments: str, password: str | None = None, program: str | None = None
        ) -> Server:
            server = Server(_reaper, program or valkey_program(), *arguments, password=password)
            running.callback(server.close)
            return server

        yield factory


@pytest.fixture
def server(server_factory: ServerFactory) -> Server:
    """Return a running Valkey server."""
    return server_factory()


@pytest.fixture(params=["valkey", "redis"])
def any_server(request: pytest.FixtureRequest, server_factory: ServerFactory) -> Server:
    """Return a running server: the test runs once on Valkey, once on Redis if that is on PATH."""
    if request.param == "valkey":
        return server_factory()
    program = redis_program()
    if program is None:
        pytest.skip("no redis-server on PATH")
    return server_factory(program=program)


@pytest.fixture
def shell(server: Server) -> Iterator[SyncRedis]:
    """Yield a connection of jobwire to the server."""
    made = SyncRedis(server.url)
    yield made
    made.close()
