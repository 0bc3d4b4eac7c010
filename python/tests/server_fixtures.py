"""Fixtures: an empty real server for each test."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import pytest

from harness.servers import Reaper, Server, programs, valkey_program, wait_until
from jobwire.connection.sync import SyncRedis
from tests import calls, profiles

if TYPE_CHECKING:
    from tests.fleet import Fleet
    from tests.workers import Workers

__all__ = ["ServerFactory"]

profiles.register()

# A shell script's background processes ignore SIGINT; processes that tests start would inherit it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

calls.watch()


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


@pytest.fixture(scope="session", autouse=True)
def _one_server_on_path(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Put the bundled server first on PATH, so that an installed one decides no result."""
    directory = tmp_path_factory.mktemp("programs")
    (directory / "redis-server").symlink_to(valkey_program())
    os.environ["PATH"] = f"{directory}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture(autouse=True)
def _no_connection_left() -> Iterator[None]:
    """Fail a test that leaves a connection open, except those of longer-lived fixtures."""
    before = calls.open_now()
    yield
    with suppress(AssertionError):  # threads may be closing them right now
        wait_until(lambda: calls.open_now() <= before, 60)
    assert calls.open_now() - before == set()


@pytest.fixture(scope="session")
def _reaper() -> Iterator[Reaper]:
    reaper = Reaper()
    yield reaper
    reaper.close()


@pytest.fixture
def reaper(_reaper: Reaper) -> Reaper:
    """Return what ends the processes that a test leaves."""
    return _reaper


@pytest.fixture
def workers(_reaper: Reaper, tmp_path: Path) -> Iterator[Workers]:
    """Start workers as processes."""
    from tests.workers import Workers  # most tests need no worker

    with Workers(_reaper, tmp_path) as started:
        yield started


@pytest.fixture
def fleet(_reaper: Reaper, tmp_path: Path) -> Iterator[Fleet]:
    """Start workers with their children."""
    from tests.fleet import Fleet

    started = Fleet(_reaper, tmp_path)
    yield started
    started.close()


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


@pytest.fixture(params=programs(), ids=os.path.basename)
def any_server(request: pytest.FixtureRequest, server_factory: ServerFactory) -> Server:
    """Return a running server of each program."""
    return server_factory(program=request.param)


@pytest.fixture
def shell(server: Server) -> Iterator[SyncRedis]:
    """Yield a connection of jobwire to the server."""
    made = SyncRedis(server.url)
    yield made
    made.close()
