"""The chaos run can start a server from a snapshot or make a replica that lags the primary, and
knows the jobs that this concerns.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator

import pytest
import redis

from harness.servers import Reaper
from tests.chaos.replica import Pair
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


@pytest.fixture
def pair() -> Iterator[Pair]:
    reaper = Reaper()
    pair = Pair(reaper)
    yield pair
    pair.close()
    reaper.close()


@pytest.mark.process
def test_a_replica_that_lags_forgets_later_writes(pair: Pair) -> None:
    def push(number: int) -> None:
        pair.primary.client().rpush("queue:low", number)

    def numbers() -> list[bytes]:
        return [*pair.primary.client().lrange("queue:low", 0, -1)]

    old = pair.primary
    push(1)
    assert pair.stop_following()
    push(2)
    pair.switch()
    assert pair.primary is not old
    assert numbers() == [b"1"]
    with pytest.raises(redis.ReadOnlyError):
        old.client().rpush("queue:low", 3)
    push(4)
    pair.primary.kill()
    pair.primary.start()
    assert numbers() == [b"1", b"4"]
    assert pair.stop_following()
    pair.switch()
    assert pair.primary is old
    assert numbers() == [b"1", b"4"]


@pytest.mark.process
def test_a_replica_follows_a_primary_that_started_from_a_snapshot(pair: Pair) -> None:
    with pair.primary.client() as client:
        client.set("kept", "1")
        pair.primary.save()
        client.set("forgotten", "1")
    pair.primary.kill()
    pair.primary.start_from_snapshot()
    assert pair.stop_following()
    pair.switch()
    assert pair.primary.client().keys("*") == [b"kept"]
