"""Fixtures for pytest; see docs/how-to/testing.md. Imports wait until a test needs them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from jobwire.application.app import App
    from jobwire.testing import Jobs, RealServer, RealWorker

__all__ = [
    "jobwire_app",
    "jobwire_fake",
    "jobwire_inline",
    "jobwire_server",
    "jobwire_worker",
    "jobwire_worker_settings",
    "pytest_addoption",
]

URL = "JOBWIRE_TEST_REDIS_URL"
_REAL = frozenset(["jobwire_server", "jobwire_worker"])  # fixtures with a server of their own


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the settings `jobwire_app` and `jobwire_strict`."""
    parser.addini("jobwire_app", "application for the jobwire fixtures, as MODULE:APP")
    parser.addini(
        "jobwire_strict",
        "true: a test without a jobwire fixture fails if it enqueues a job",
        type="bool",
    )


@pytest.fixture(scope="session")
def _jobwire_configured_app(pytestconfig: pytest.Config) -> App:
    from jobwire.cli.exits import AppNotLoaded
    from jobwire.cli.loading import load_app

    target = pytestconfig.getini("jobwire_app")
    if not target:
        pytest.fail(
            'jobwire: no application is named; set jobwire_app = "shop.jobs:app" in pytest\'s '
            "settings, or define a fixture jobwire_app that returns it",
            pytrace=False,
        )
    try:
        return load_app(target)
    except AppNotLoaded as error:
        pytest.fail(f"jobwire_app: {error}", pytrace=False)


@pytest.fixture
def jobwire_app(_jobwire_configured_app: App) -> App:
    """The application under test; define a fixture of this name to choose it."""
    return _jobwire_configured_app


@pytest.fixture(autouse=True)
def _jobwire_strict(request: pytest.FixtureRequest) -> Iterator[None]:
    """Refuse the jobs of a test that has no fixture for them, if `jobwire_strict` is set."""
    if not request.config.getini("jobwire_strict") or _REAL.intersection(request.fixturenames):
        yield
        return
    from jobwire import testing

    with testing.strict(request.getfixturevalue("jobwire_app")):
        yield


@pytest.fixture
def jobwire_fake(jobwire_app: App) -> Iterator[Jobs]:
    """Collected jobs, which are not written to Redis; see `jobwire.testing.fake`."""
    from jobwire import testing

    with testing.fake(jobwire_app) as jobs:
        yield jobs


@pytest.fixture
def jobwire_inline(jobwire_app: App) -> Iterator[Jobs]:
    """Jobs that run in place when they are enqueued; see `jobwire.testing.inline`."""
    from jobwire import testing

    with testing.inline(jobwire_app) as jobs:
        yield jobs


@pytest.fixture(scope="session")
def _jobwire_session_server() -> Iterator[RealServer]:
    from jobwire import testing
    from jobwire.connection.embedded import EmbeddedUnavailable

    url = os.environ.get(URL) or None
    if url is not None and "PYTEST_XDIST_WORKER" in os.environ:
        pytest.fail(
            f"jobwire: {URL} is one database, and each process of pytest-xdist would delete the "
            "data of the others; unset it, so that each has its own server, or run without -n",
            pytrace=False,
        )
    try:
        with testing.server(url) as server:
            yield server
    except EmbeddedUnavailable as error:
        pytest.fail(
            f"jobwire: {error}; or set {URL} to the URL of an empty database", pytrace=False
        )


@pytest.fixture
def jobwire_server(_jobwire_session_server: RealServer) -> Iterator[RealServer]:
    """A real server, flushed after each test; all tests share it."""
    yield _jobwire_session_server
    _jobwire_session_server.flush()


@pytest.fixture
def jobwire_worker_settings() -> dict[str, Any]:
    """Arguments of `jobwire.testing.worker`; define a fixture of this name to change them."""
    return {}


@pytest.fixture
def jobwire_worker(
    jobwire_app: App, jobwire_server: RealServer, jobwire_worker_settings: dict[str, Any]
) -> Iterator[RealWorker]:
    """A real worker, which gets all jobs that the application enqueues; see `RealWorker.drain`."""
    from jobwire import testing

    with testing.worker(jobwire_app, jobwire_server.url, **jobwire_worker_settings) as worker:
        yield worker
