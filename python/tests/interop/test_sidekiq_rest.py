"""Sidekiq where recorded payloads cannot show it: queues, signals, refusals, spreading."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest
import redis

from harness.servers import wait_until
from tests.interop.commands import commands
from tests.interop.driver import Driver, RubyError
from tests.interop.sidekiq import RealSidekiq, results

pytestmark = pytest.mark.interop


def test_a_key_that_is_no_list(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """FETCH-7: a bad key stops the queues behind it. ENV-3: two seconds of blocking.

    EXEC-6, STAT-1: a job that middleware skipped counts as processed. SIG-2: quiet ends fetching.
    """
    client.set("queue:bad", "no list")
    jid = driver.perform_async("EchoJob")
    skipped = driver.push({"class": "EchoJob", "args": [], "skip": True})
    with sidekiq.worker(queues=["bad", "default"], concurrency=1, poll=None) as worker:
        wait_until(lambda: "WRONGTYPE" in worker.log(), 60, "the complaint")
        assert results(client) == []
        assert driver.queue_size() == 2
        client.delete("queue:bad")
        wait_until(lambda: driver.queue_size() == 0, 60, "the end of the queue")
        with commands(client) as seen:
            fetches = asked(client)
            # A fetch counts when it ends: only the second to end is sure to have begun in here.
            wait_until(lambda: asked(client) > fetches + 1, 60, "two more fetches")
        assert ["BRPOP", "queue:bad", "queue:default", "2"] in seen
        worker.signal(signal.SIGTSTP)
        wait_until(lambda: "accepting" in worker.log(), 60, "quiet")
        wait_until(lambda: not blocked(client), 60, "the end of fetching")
        late = driver.perform_async("EchoJob")
        assert worker.stop() == 0
    assert [result["jid"] for result in results(client)] == [jid]
    assert [record.jid for record in driver.queue_list()] == [late]
    assert skipped is not None
    assert client.get("stat:processed") == b"2"
    assert client.get("stat:failed") in (None, b"0")


def blocked(client: redis.Redis) -> bool:
    """True if a client waits in BRPOP."""
    info: Any = client.info("clients")
    return bool(info["blocked_clients"])


def asked(client: redis.Redis) -> int:
    """Return the number of BRPOP so far."""
    info: Any = client.info("commandstats")
    calls: int = info["cmdstat_brpop"]["calls"]
    return calls


def test_arguments_that_json_lacks(sidekiq: RealSidekiq, driver: Driver) -> None:
    """PUSH-5: 6 warns and pushes text; 7 and 8 refuse."""
    code = "Sidekiq::Client.push('class' => 'EchoJob', 'args' => [:symbol, {1 => 2}])"
    if sidekiq.generation == 6:
        assert driver.eval(code)
        assert driver.queue_list()[0].args == ["symbol", {"1": 2}]
    else:
        with pytest.raises(RubyError, match="ArgumentError"):
            driver.eval(code)
        assert driver.queues() == []


def test_times_that_cannot_be_meant(driver: Driver, client: redis.Redis) -> None:
    """SCHED-4: Sidekiq accepts milliseconds and negative times; it refuses other values."""
    for at in (-5.0, 1_795_192_067_000):
        driver.push({"class": "EchoJob", "args": [], "at": at})
    found: Any = client.zrange("schedule", 0, -1, withscores=True)
    scores = [score for _, score in found]
    assert scores == [-5.0, 1_795_192_067_000]
    with pytest.raises(RubyError, match="ArgumentError"):
        driver.push({"class": "EchoJob", "args": [], "at": "tomorrow"})


def test_spreading(sidekiq: RealSidekiq, driver: Driver) -> None:
    """BULK-4: only in 8; an interval below 5 s counts as 5 s."""
    if sidekiq.generation < 8:
        pytest.skip("spreading exists from 8.0.8 on")
    before = time.time()
    driver.push_bulk({"class": "EchoJob", "args": [[n] for n in range(200)], "spread_interval": 1})
    after = time.time()
    scores = [record.score for record in driver.set_list("schedule") if record.score]
    assert len(set(scores)) > 190
    assert before - 0.5 < min(scores) < after + 1
    assert 4 < max(scores) - min(scores) <= 5
