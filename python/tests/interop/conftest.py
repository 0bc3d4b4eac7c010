"""Fixtures of the interop tests: every test that takes `sidekiq` runs once per generation."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import redis

from harness.chroots import CHROOTS, missing
from harness.servers import Server
from tests.interop.driver import Driver
from tests.interop.sidekiq import GENERATIONS, RealSidekiq


@pytest.fixture(scope="session", params=GENERATIONS)
def sidekiq_version(request: pytest.FixtureRequest) -> str:
    """Yield each installed generation. JOBWIRE_REQUIRE_INTEROP=1 requires all of them."""
    version: str = request.param
    if reason := missing(version):
        if os.environ.get("JOBWIRE_REQUIRE_INTEROP") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return version


@pytest.fixture
def sidekiq(sidekiq_version: str, server: Server) -> RealSidekiq:
    """A real Sidekiq of one generation, on the test's own server."""
    return RealSidekiq(sidekiq_version, CHROOTS / sidekiq_version, server.url)


@pytest.fixture
def iterable_jobs(sidekiq: RealSidekiq) -> None:
    """Skip the test on a generation without iterable jobs."""
    if sidekiq.generation == 6:
        pytest.skip("6.4 has no iterable jobs")


@pytest.fixture
def driver(sidekiq: RealSidekiq) -> Iterator[Driver]:
    """Sidekiq's client and API, on the same server."""
    with sidekiq.driver() as driver:
        yield driver


@pytest.fixture
def client(server: Server) -> Iterator[redis.Redis]:
    """A plain connection to the same server."""
    with server.client() as client:
        yield client
