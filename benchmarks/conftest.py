"""Servers for the benchmarks are those of the tests."""

from tests.conftest import _keeper, server, server_factory

__all__ = ["_keeper", "server", "server_factory"]
