"""Due jobs go to their queues: each exactly once, with any other members in the set."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.promotion import BATCH, Promoted, promote_batch
from jobwire.protocol.times import Generation
from jobwire.worker.background.poller import Poller
from tests.integration.clients import everything, listening
from tests.workers import brisk

NOW = 1_795_192_067.25
KEYS = Keys()


@pytest.fixture
def shell(any_server: Server) -> Iterator[SyncRedis]:
    made = SyncRedis(any_server.url)
    yield made
    made.close()


def promote(
    shell: SyncRedis,
    zset: str = "schedule",
    *,
    limit: int = 100,
    generation: Generation = 8,
    keys: Keys = KEYS,
) -> Promoted:
    op = promote_batch(
        keys,
        keys.namespace + zset,
        now=NOW,
        generation=generation,
        dead_limits=DeadSetLimits(NOW),
        limit=limit,
    )
    return shell.run(op)


def payload(number: int, **fields: Any) -> bytes:
    made = {"retry": True, "queue": "low", "class": "A", "args": [number], "created_at": 5}
    return json.dumps(made | fields, separators=(",", ":")).encode()


def test_due_is_what_is_not_later_than_now(any_server: Server, shell: SyncRedis) -> None:
    """SCHED-5: the clock's own second is due, the next instant is not."""
    client = any_server.client()
    due, later = payload(1), payload(2)
    client.zadd("schedule", {due: NOW, later: NOW + 0.001, payload(3): NOW + 60})
    assert promote(shell).moved == 1
    assert client.zcard("schedule") == 2
    [moved] = client.lrange("queue:low", 0, -1)
    assert json.loads(moved)["args"] == [1]


def test_a_batch_is_two_round_trips(any_server: Server, shell: SyncRedis) -> None:
    """SCHED-5: one question and one script, for any number of queues."""
    any_server.client().zadd("schedule", {payload(n, queue=f"q{n % 7}"): 1 for n in range(100)})
    promote(shell, limit=1)  # loads the script
    with listening(any_server) as heard:
        assert promote(shell).moved == 99
        assert [line.name for line in heard() if not line.by_script] == ["ZRANGE", "EVALSHA"]


def test_promoters_race_harmlessly(any_server: Server) -> None:
    """SCHED-5, SCHED-16: every job moves once, with any number of pollers at the same time."""
    client = any_server.client()
    client.zadd("schedule", {payload(n): NOW - 500 + n for n in range(500)})
    client.zadd("schedule", {b"bad %d" % n: 1 for n in range(100)})

    def drain(_: int) -> tuple[int, int]:
        shell = SyncRedis(any_server.url)
        moved = buried = 0
        while (result := promote(shell, limit=20)).seen:
            moved += result.moved
            buried += len(result.killed)
        shell.close()
        return moved, buried

    with ThreadPoolExecutor(6) as threads:
        results = list(threads.map(drain, range(6)))
    assert tuple(map(sum, zip(*results, strict=True))) == (500, 100)
    numbers = Counter(json.loads(t)["args"][0] for t in client.lrange("queue:low", 0, -1))
    assert numbers == Counter(range(500))
    assert client.zcard("dead") == 100


def test_promoters_of_the_other_kind_are_no_harm(any_server: Server, shell: SyncRedis) -> None:
    """SCHED-16: a promoter that pops and then pushes takes a member first; we push nothing."""
    client = any_server.client()
    client.zadd("schedule", {payload(1): 1, b"bad": 1})
    op = promote_batch(KEYS, "schedule", now=NOW, generation=8, dead_limits=DeadSetLimits(NOW))
    due = client.zrange("schedule", "-inf", NOW, byscore=True)
    step = next(op)
    assert step is not None
    script = op.send(due)
    client.zrem("schedule", payload(1), b"bad")

    def rest() -> Any:
        reply = yield script
        try:
            while True:
                reply = yield op.send(reply)
        except StopIteration as done:
            return done.value

    assert shell.run(rest()) == Promoted(seen=2, moved=0, killed=[])
    assert everything(any_server) == {}


@contextmanager
def polling(server: Server) -> Iterator[Poller]:
    """Run a poller that looks without pause."""
    redis = SyncRedis(server.url)
    poller = Poller(
        redis,
        Keys(),
        interval=0.01,
        timings=brisk(first_poll_wait=lambda _, jitter: 0.0),
        generation=lambda: 8,
        dead_limits=lambda: DeadSetLimits(time.time()),
    )
    poller.start()
    try:
        yield poller
    finally:
        poller.close(timeout=60)
        redis.close()


def test_members_that_stay_block_nobody(server: Server) -> None:
    """SCHED-24, SCHED-26: more than a batch of due members whose queue key is not a list.

    Later ones move.
    """
    client = server.client()
    client.set("queue:broken", "no list")
    stuck = [json.dumps({"class": "A", "queue": "broken", "jid": str(n)}) for n in range(BATCH + 7)]
    client.zadd("schedule", dict.fromkeys(stuck, 1.0))
    client.zadd("schedule", {json.dumps({"class": "A", "queue": "good", "jid": "last"}): 2.0})
    with polling(server):
        wait_until(lambda: client.llen("queue:good") == 1, 60, what="the member behind to be moved")
    assert client.zcard("schedule") == len(stuck)
    assert client.get("queue:broken") == b"no list"
