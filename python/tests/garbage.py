"""Collects garbage at the end of a test, so that a warning fails the test that caused it.

A pytest plugin. A warning of the collector, such as one on a connection that was never closed,
would otherwise fail the test in which the collector happens to run.
"""

from __future__ import annotations

import gc
import socket
import subprocess
from collections.abc import Generator, Iterator

import pytest

from tests.calls import hear

_heard = False  # a server, an event loop or a process


def _hear(*_: object, **__: object) -> None:
    global _heard
    _heard = True


hear(socket.socket, "__init__", _hear)
hear(subprocess.Popen, "__init__", _hear)


def pytest_configure(config: pytest.Config) -> None:
    # With Python 3.14, Hypothesis does not find its own reference among frozen objects.
    config.addinivalue_line("filterwarnings", "ignore:It looks like .register_random.")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Look for no garbage among the tests, and leave them out of later collections."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Leave what such a test has made for good out of later collections as well.

    Only here, when pytest has dropped the values of the fixtures: a frozen cycle stays for ever.
    """
    try:
        return (yield)
    finally:
        if _heard:
            gc.collect()
            gc.freeze()


@pytest.fixture(autouse=True)
def _no_garbage_left() -> Iterator[None]:
    """Collect the garbage of a test with a server, an event loop or a process.

    pytest looks for warnings after the fixtures have ended.
    """
    global _heard
    _heard = False
    yield
    if _heard:
        gc.collect()
