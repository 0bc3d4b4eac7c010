"""The poller against a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

from harness.servers import Server, wait_until
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.promotion import BATCH
from jobwire.worker.background.poller import Poller
from tests.workers import brisk


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
