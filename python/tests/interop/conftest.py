"""Fixtures of the interop tests: every test that takes `sidekiq` runs once per generation."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from tests.interop.driver import Driver
from tests.interop.sidekiq import GENERATIONS, RealSidekiq
from tests.servers import Server


def chroots() -> Path:
    """Where `.ci/sidekiq-chroots` puts them."""
    return Path(os.environ.get("JOBWIRE_CACHE") or "/var/cache/jobwire") / "sidekiq"


def missing(version: str) -> str | None:
    """Say why this version cannot run here; None when it can."""
    if os.geteuid() != 0:
        return "real Sidekiq runs in a chroot, which needs root: run `make interop` as root"
    if not (chroots() / version / ".complete").exists():
        return f"real Sidekiq {version} is not installed: run `make interop`"
    return None


@pytest.fixture(scope="session", params=GENERATIONS)
def sidekiq_version(request: pytest.FixtureRequest) -> str:
    """Each generation in turn, if it is there. JOBWIRE_REQUIRE_INTEROP=1: it has to be."""
    version: str = request.param
    if reason := missing(version):
        if os.environ.get("JOBWIRE_REQUIRE_INTEROP") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return version


@pytest.fixture
def sidekiq(sidekiq_version: str, server: Server) -> RealSidekiq:
    """A real Sidekiq of one generation, on the test's own server."""
    return RealSidekiq(sidekiq_version, chroots() / sidekiq_version, server.url)


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
