"""A server that can start from a snapshot, and the jobs that old data brings back."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from harness.servers import Reaper, Server, valkey_program, wait_until

__all__ = ["PRIVATE", "Gate", "SnapshotServer", "moved", "places"]

PRIVATE = "jobwire:private:"
_BASE = "appendonly.aof.1.base.rdb"


class SnapshotServer(Server):
    """A server that stores every write, and can forget those that follow a snapshot."""

    def __init__(self, reaper: Reaper, *options: str) -> None:
        safe = ("--appendonly", "yes", "--appendfsync", "always")
        super().__init__(reaper, valkey_program(), *safe, *options)

    def save(self) -> None:
        """Save a snapshot."""
        with self.client() as client:
            wait_until(lambda: _saves(client), what="the end of the copy for a replica")

    def start_from_snapshot(self) -> None:
        """Start with the data of the last SAVE. Its file becomes the base of a new log."""
        log = self._directory / "appendonlydir"
        shutil.rmtree(log)
        log.mkdir()
        shutil.copyfile(self._directory / "dump.rdb", log / _BASE)
        (log / "appendonly.aof.manifest").write_text(f"file {_BASE} seq 1 type b\n")
        self.start()


def _saves(client: Any) -> bool:
    """Save a snapshot; return False if another one is being saved."""
    try:
        return bool(client.save())
    except redis.ResponseError as error:
        if "already in progress" not in str(error):
            raise
        return False


class Gate:
    """Keeps pushes out of the time that a server forgets."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._closed = False
        self._inside = 0

    @contextmanager
    def passing(self) -> Iterator[None]:
        """Wait until the gate is open; it does not close during the block."""
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._inside -= 1
                self._changed.notify_all()

    def close(self) -> None:
        """Close the gate, and wait for the pushes inside."""
        with self._changed:
            self._closed = True
            self._changed.wait_for(lambda: not self._inside)

    def open(self) -> None:
        with self._changed:
            self._closed = False
            self._changed.notify_all()


def places(client: Any) -> set[tuple[bytes, int]]:
    """Return the place and the number of each job that waits or is in flight."""
    found = [(key, text) for key in (b"retry", b"schedule") for text in client.zrange(key, 0, -1)]
    for name in client.smembers("queues"):
        key = b"queue:" + name
        found += [(key, text) for text in client.lrange(key, 0, -1)]
    for key in client.keys(PRIVATE + "*"):
        found += [(key + b" " + field, text) for field, text in client.hgetall(key).items()]
    return {(place, json.loads(text)["args"][0]) for place, text in found}


def moved(snapshot: set[tuple[bytes, int]], later: set[tuple[bytes, int]]) -> set[int]:
    """Return the jobs that old data brings back to a place that they had left.

    Such a job may have run, or a process may still run it, so it may run a second time.
    """
    return {number for _, number in snapshot - later}
