"""The chaos run can start a server from a snapshot, and knows the jobs that this concerns."""

from __future__ import annotations

import json
import threading

from harness.servers import Reaper
from tests.chaos.snapshots import Gate, SnapshotServer, moved, places


def test_a_snapshot_forgets_later_writes_once() -> None:
    reaper = Reaper()
    server = SnapshotServer(reaper)

    def push(number: int) -> None:
        with server.client() as client:
            client.lpush("queue:low", json.dumps({"args": [number]}))

    def numbers() -> set[int]:
        with server.client() as client:
            return {number for _, number in places(client)}

    try:
        with server.client() as client:
            client.sadd("queues", "low")
            push(1)
            server.save()
        push(2)
        server.kill()
        server.start_from_snapshot()
        assert numbers() == {1}
        push(3)
        server.kill()
        server.start()
        assert numbers() == {1, 3}
    finally:
        server.close()
        reaper.close()


def test_jobs_that_left_their_place_may_run_again() -> None:
    snapshot = {(b"queue:low", 1), (b"queue:low", 2), (b"retry", 3), (b"private 7:low", 4)}
    later = {(b"queue:low", 1), (b"queue:low", 3), (b"private 7:low", 4), (b"retry", 5)}
    assert moved(snapshot, later) == {2, 3}


def test_no_push_passes_a_closed_gate() -> None:
    gate, passed = Gate(), threading.Event()

    def push() -> None:
        with gate.passing():
            passed.set()

    gate.close()
    pushing = threading.Thread(target=push, daemon=True)
    pushing.start()
    assert not passed.wait(0.05)
    gate.open()
    assert passed.wait(30)
    pushing.join(30)
