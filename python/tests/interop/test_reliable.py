"""Features of the reliable profile, together with real Sidekiq that does not know them."""

from __future__ import annotations

import json
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire import Client
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.dead_set import DeadSetLimits, kill
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import decode
from jobwire.protocol.poison import poisoned
from jobwire.protocol.wire import once
from jobwire.worker.background.poller import Poller
from tests.interop.driver import Driver
from tests.interop.sidekiq import RealSidekiq, results

pytestmark = pytest.mark.interop

JOBS = 300


def test_precise_pollers_beside_two_of_sidekiqs(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server
) -> None:
    """SCHED-5, SCHED-11: four pollers take from the same sets; each job arrives once."""
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(sidekiq.worker(queues=["nobody"], poll=0.02))
            shell = SyncRedis(server.url)
            poller = Poller(
                shell,
                Keys(),
                interval=None,
                precise=True,
                generation=lambda: 8,
                dead_limits=lambda: DeadSetLimits(time.time()),
            )
            poller.start()
            stack.callback(shell.close)
            stack.callback(poller.close, 10)
        python = stack.enter_context(Client(server.url))
        jids: list[Any] = []
        for _ in range(3):
            due = time.time() + 1.0
            half: list[list[Any]] = [[number] for number in range(JOBS // 2)]
            jids += python.push_bulk("EchoJob", half, at=due)
            jids += driver.push_bulk({"class": "EchoJob", "args": half, "at": due})
            early: Any = dict.fromkeys(client.zrange("schedule", 0, 9), due)
            client.zadd("retry", early)
            client.zrem("schedule", *client.zrange("retry", 0, -1))
        wait_until(lambda: client.llen("queue:default") >= len(jids), 60, "all promotions")
        wait_until(lambda: not client.exists("schedule", "retry"), 60, "empty sets")
    found = [json.loads(text)["jid"] for text in client.lrange("queue:default", 0, -1)]
    assert Counter(found) == Counter(jids)


def test_a_poison_pill_is_read_and_retried(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server
) -> None:
    """REL-10, DEAD-1: Sidekiq shows it like any other entry of the dead set."""
    jid = driver.push({"class": "EchoJob", "args": [7]})
    texts: Any = client.lrange("queue:default", 0, -1)
    [text] = texts
    client.delete("queue:default")
    fate = poisoned(decode(text, "default"), 4, now=time.time(), generation=8)
    assert fate is not None
    shell = SyncRedis(server.url)
    shell.run(once(kill("dead", fate.text, DeadSetLimits(time.time()))))
    shell.close()
    entry = "Sidekiq::DeadSet.new.first"
    seen = driver.eval(f"[{entry}.jid, {entry}['error_class'], {entry}['error_message']]")
    assert seen[:2] == [jid, "jobwire.PoisonPill"]
    assert "4 processes died" in seen[2]
    driver.eval(f"{entry}.retry; nil")
    assert client.zcard("dead") == 0
    with sidekiq.worker():
        wait_until(lambda: client.llen("app:results") == 1, 60, "the run")
    assert results(client)[0]["jid"] == jid


def test_sidekiq_serves_a_paused_queue(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """REL-9: Sidekiq never looks at our key; the pause stops our workers only."""
    client.sadd("jobwire:paused", "default")
    driver.push({"class": "EchoJob", "args": [7]})
    with sidekiq.worker():
        wait_until(lambda: client.llen("app:results") == 1, 60, "the run")
    assert client.smembers("jobwire:paused") == {b"default"}
