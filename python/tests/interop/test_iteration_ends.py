"""The ends of a run of Sidekiq's iterable jobs: yield, abort, break."""

from __future__ import annotations

import json
import signal
from typing import cast

import pytest
import redis

from harness.servers import wait_until
from tests.interop.driver import Driver
from tests.interop.sidekiq import RealSidekiq, items, results

pytestmark = [pytest.mark.interop, pytest.mark.usefixtures("iterable_jobs")]


@pytest.mark.parametrize("name", ["TSTP", "TERM"])
def test_a_run_yields(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, name: str) -> None:
    """ITER-4, ITER-13, ITER-14, ITER-16, ITER-17: at a stop, and already when it becomes quiet."""
    job = {"class": "IterJob", "args": [600, 0.05], "retry": True, "retry_count": 2}
    jid = str(driver.push({**job, "failed_at": 1.5, "error_message": "m", "error_class": "E"}))
    before = json.loads(cast("bytes", client.lindex("queue:default", 0)))
    with sidekiq.worker(poll=None) as worker:
        wait_until(lambda: len(items(client, jid)) >= 3, 60, "the first items")
        worker.signal(signal.Signals[f"SIG{name}"])
        wait_until(lambda: client.llen("queue:default"), 60, "the job in its queue")
        state = cast("dict[bytes, bytes]", client.hgetall(f"it-{jid}"))
        if name == "TERM":
            assert worker.wait() == 0
    assert int(state[b"c"]) == len(items(client, jid)) < 600
    (text,) = cast("list[bytes]", client.lrange("queue:default", 0, -1))
    after = json.loads(text)
    assert after.pop("enqueued_at") > before.pop("enqueued_at")
    assert after == before


def test_a_run_that_is_aborted(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """ITER-15, SIG-5: 8.1.7 writes the state, 7.3.2 does not."""
    jid = str(driver.perform_async("IterJob", 5, 60))
    with sidekiq.worker(poll=None, timeout=1, concurrency=1) as worker:
        wait_until(lambda: items(client, jid), 60, "the first item")
        assert worker.stop() == 0
    assert client.llen("queue:default") == 1
    assert bool(client.exists(f"it-{jid}")) == (sidekiq.generation == 8)


def test_a_run_that_breaks(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """ITER-7, ITER-18, ITER-19: the job is done, and its state is gone."""
    if sidekiq.generation == 7:
        pytest.skip("7.3.2 cannot cancel")
    jid = str(driver.perform_async("IterJob", 600, 0.05))
    with sidekiq.worker(poll=None) as worker:
        wait_until(lambda: items(client, jid), 60, "the first item")
        driver.eval("Sidekiq::Client.new.cancel!(with)", jid)
        wait_until(lambda: results(client), 60, "its end")
        wait_until(lambda: not client.exists(f"it-{jid}"), 60, "the end of its state")
        assert worker.stop() == 0
    assert len(items(client, jid)) < 600
    assert (client.zcard("retry"), client.zcard("dead"), client.llen("queue:default")) == (0, 0, 0)


def test_a_run_that_takes_long_yields(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """ITER-11: from 8.0.8 on, if it is configured."""
    if sidekiq.generation == 7:
        pytest.skip("7.3 has no such setting")
    jid = str(driver.perform_async("IterJob", 600, 0.05))
    with sidekiq.worker(poll=None, env={"MAX_ITERATION_RUNTIME": "1"}):
        wait_until(lambda: int(client.hget(f"it-{jid}", "ex") or 0) >= 2, 60, "two runs")
