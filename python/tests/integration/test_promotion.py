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


@pytest.mark.parametrize("zset", ["schedule", "retry"])
@pytest.mark.parametrize(("generation", "stamp"), [(8, b"1795192067250"), (7, b"1795192067.25")])
def test_a_due_job_is_moved(
    any_server: Server, shell: SyncRedis, zset: str, generation: Generation, stamp: bytes
) -> None:
    """SCHED-6, SCHED-7, SCHED-19, SCHED-20, KEY-1: at the head, registered.

    With enqueued_at and no other change, except the spelling of escapes. [PAY-2]
    """
    client = any_server.client()
    client.lpush("queue:low", b"waiting")
    text = (
        b'{"retry":true,"queue":"low","class":"A","args":[[],{},1.50,12345678901234567890],'
        b'"created_at":1795190000000,"x":{"\\u00e9":null}}'
    )
    client.zadd(zset, {text: NOW - 1})
    result = promote(shell, zset, generation=generation)
    assert (result.seen, result.moved, list(result.killed)) == (1, 1, [])
    written = text[:-1].replace(b"\\u00e9", "é".encode())
    assert everything(any_server) == {
        b"queues": {b"low"},
        b"queue:low": [written + b',"enqueued_at":' + stamp + b"}", b"waiting"],
    }


def test_due_is_what_is_not_later_than_now(any_server: Server, shell: SyncRedis) -> None:
    """SCHED-5: the clock's own second is due, the next instant is not."""
    client = any_server.client()
    due, later = payload(1), payload(2)
    client.zadd("schedule", {due: NOW, later: NOW + 0.001, payload(3): NOW + 60})
    assert promote(shell).moved == 1
    assert client.zcard("schedule") == 2
    [moved] = client.lrange("queue:low", 0, -1)
    assert json.loads(moved)["args"] == [1]


def test_the_longest_due_go_first(any_server: Server, shell: SyncRedis) -> None:
    """SCHED-7: so that they run first; a batch is limited."""
    client = any_server.client()
    client.zadd("schedule", {payload(n): NOW - 100 + n for n in range(10)})
    assert promote(shell, limit=4) == Promoted(seen=4, moved=4)
    assert promote(shell, limit=4) == Promoted(seen=4, moved=4)
    assert promote(shell, limit=4) == Promoted(seen=2, moved=2)
    queue = [json.loads(text)["args"][0] for text in reversed(client.lrange("queue:low", 0, -1))]
    assert queue == list(range(10))


def test_a_batch_is_two_round_trips(any_server: Server, shell: SyncRedis) -> None:
    """SCHED-5: one question and one script, for any number of queues."""
    any_server.client().zadd("schedule", {payload(n, queue=f"q{n % 7}"): 1 for n in range(100)})
    promote(shell, limit=1)  # loads the script
    with listening(any_server) as heard:
        assert promote(shell).moved == 99
        assert [line.name for line in heard() if not line.by_script] == ["ZRANGE", "EVALSHA"]


BAD = {
    "empty": b"",
    "not JSON": b"{not json",
    "not UTF-8": b'{"queue":"\xff"}',
    "binary": bytes(range(256)),
    "no object": b"[1]",
    "no queue name": b'{"queue":5}',
    "empty queue name": b'{"queue":""}',
    "null for a queue": b'{"queue":null}',
    "too deep": b'{"x":' + b"[" * 101 + b"]" * 101 + b"}",
}


def test_bad_members_are_buried_and_block_nobody(any_server: Server, shell: SyncRedis) -> None:
    """SCHED-9, SCHED-24, DEAD-1: killed byte for byte, in one look.

    The good member behind them is moved.
    """
    client = any_server.client()
    client.zadd("retry", dict.fromkeys(BAD.values(), 1) | {payload(1): 2})
    result = promote(shell, "retry")
    assert (result.seen, result.moved) == (len(BAD) + 1, 1)
    assert {member for member, _ in result.killed} == set(BAD.values())
    assert {error.rule for _, error in result.killed} == {"EXEC-3", "EXEC-4", "PAY-3", "SCHED-9"}
    graves = dict(client.zrange("dead", 0, -1, withscores=True))
    no_objects = dict(client.zrange("jobwire:unreadable", 0, -1, withscores=True))
    assert graves | no_objects == dict.fromkeys(BAD.values(), NOW)
    assert set(no_objects) == {member for member, error in result.killed if error.rule == "EXEC-4"}
    assert client.llen("queue:low") == 1
    assert not client.exists("retry", "queue:", "queue:5")


def test_a_raw_time_in_a_foreign_member_is_dropped(any_server: Server, shell: SyncRedis) -> None:
    """SCHED-18: otherwise a reader would schedule the job again."""
    any_server.client().zadd("schedule", {b'{"at":5,"queue":"q","class":"A"}': 1})
    promote(shell)
    [text] = any_server.client().lrange("queue:q", 0, -1)
    assert json.loads(text) == {
        "retry": True,
        "queue": "q",
        "class": "A",
        "created_at": 1795192067250,
        "enqueued_at": 1795192067250,
    }


def test_a_queue_that_is_no_list_keeps_its_jobs(any_server: Server, shell: SyncRedis) -> None:
    """SCHED-26: its members stay in the set; the others move."""
    client = any_server.client()
    client.set("queue:low", "in the way")
    client.zadd("schedule", {payload(1): 1, payload(2, queue="high"): 2})
    assert promote(shell) == Promoted(seen=2, moved=1, stuck=1)
    assert client.zrange("schedule", 0, -1) == [payload(1)]
    assert client.llen("queue:high") == 1


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


def test_a_namespace_is_kept_to(any_server: Server, shell: SyncRedis) -> None:
    """KEY-4: for both scripts."""
    client = any_server.client()
    client.zadd("app:retry", {payload(1): 1, b"bad": 1})
    promote(shell, "retry", keys=Keys("app:"))
    assert set(client.keys()) == {b"app:queues", b"app:queue:low", b"app:dead"}


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


def test_a_stop_leaves_a_long_backlog(server: Server) -> None:
    """SCHED-10: at most 1,000 more; the server holds the scripts while the stop comes."""
    client = server.client()
    jobs = [json.dumps({"class": "A", "queue": "q", "jid": str(n)}) for n in range(20_000)]
    client.zadd("schedule", dict.fromkeys(jobs, 1.0))
    with polling(server) as poller:
        wait_until(lambda: client.exists("queue:q"), 60, what="the first batch")
        client.execute_command("CLIENT", "PAUSE", 60_000, "WRITE")
        moved = client.llen("queue:q")
        poller.close(timeout=0)
        client.execute_command("CLIENT", "UNPAUSE")
    assert moved <= client.llen("queue:q") <= min(moved + 1000, len(jobs) - 1)
    assert client.llen("queue:q") + client.zcard("schedule") == len(jobs)


def test_a_broken_retry_set_does_not_stop_the_schedule(server: Server) -> None:
    """SCHED-5: each set is looked at, also if the other one is of a wrong type."""
    client = server.client()
    client.set("retry", "not a sorted set")
    client.zadd("schedule", {json.dumps({"class": "A", "queue": "good", "jid": "1"}): 1.0})
    with polling(server):
        wait_until(lambda: client.llen("queue:good") == 1, 60, what="the member to be moved")
    assert client.get("retry") == b"not a sorted set"
