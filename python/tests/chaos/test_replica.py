"""The chaos run can put a replica that lags in the place of its primary."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

from harness.servers import Reaper
from tests.chaos.replica import Pair


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
