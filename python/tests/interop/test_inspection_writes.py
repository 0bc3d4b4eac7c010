"""Writes of our inspector, compared with those of each Sidekiq's API for the same action."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any, cast

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire.inspect import Inspector
from tests.interop.driver import Driver
from tests.interop.sidekiq import RealSidekiq, results
from tests.interop.test_sidekiq_inspector import INFO, entry

pytestmark = pytest.mark.interop


@pytest.fixture
def inspector(server: Server, driver: Driver) -> Iterator[Inspector]:
    with Inspector(server.url) as made:
        yield made


def everything(client: redis.Redis) -> dict[str, Any]:
    """Return queues and sets with their payloads decoded, keys in their order, times as types."""

    def shown(text: bytes) -> Any:
        pairs = json.loads(text, object_pairs_hook=list)
        return [[k, type(v).__name__ if k == "enqueued_at" else v] for k, v in pairs]

    found: dict[str, Any] = {"queues": client.smembers("queues")}
    for key in sorted(cast("list[bytes]", client.keys("queue:*"))):
        found[key.decode()] = [
            shown(each) for each in cast("list[bytes]", client.lrange(key, 0, -1))
        ]
    for name in ("schedule", "retry", "dead"):
        scored = cast("Any", client.zrange(name, 0, -1, withscores=True))
        # The time of a death is now, but for jobs that died long ago.
        found[name] = [
            [shown(text), "now" if abs(score - time.time()) < 60 else score]
            for text, score in scored
        ]
    return found


def member(jid: str, generation: int, **fields: Any) -> str:
    created = 1795192067250 if generation == 8 else 1795192067.25
    return entry(jid, created_at=created, **fields)


@pytest.mark.parametrize("name", ["retry", "schedule", "dead"])
@pytest.mark.parametrize("action", ["retry", "add_to_queue", "kill", "delete", "reschedule"])
def test_the_same_is_left_as_by_sidekiq(
    sidekiq: RealSidekiq,
    driver: Driver,
    inspector: Inspector,
    client: redis.Redis,
    action: str,
    name: Any,
) -> None:
    """INSP-4 to INSP-8: queue, set and payload, field by field in its order."""
    if (action, name) == ("kill", "dead") and sidekiq.generation < 7:
        pytest.skip("a dead entry stays where it is in any case")

    def prepare() -> None:
        client.delete("queues", "queue:default", "queue:low", "retry", "schedule", "dead")
        far = 4e9
        client.zadd(name, {member("a" * 24, sidekiq.generation, retry_count=3): far})
        client.zadd(name, {member("b" * 24, sidekiq.generation, queue="low", x=[1.5]): far})
        client.zadd(
            name, {member("c" * 24, sidekiq.generation).replace(',"retry_count":0', ""): 5e9}
        )

    def act_there(jid: str) -> None:
        if action == "reschedule":
            driver.reschedule(name, jid, 4.5e9)
        else:
            getattr(driver, action)(name, jid)

    def act_here(jid: str) -> None:
        found = inspector.find(name, jid)
        assert found is not None
        if action == "reschedule":
            assert inspector.reschedule(found, 4.5e9)
        else:
            assert getattr(inspector, action)(found)

    # A process of that generation decides the form of times. [GEN-5]
    client.sadd("processes", "a:1:0123456789ab")
    info = {**INFO, "identity": "a:1:0123456789ab", "version": sidekiq.version}
    client.hset("a:1:0123456789ab", "info", json.dumps(info))
    left = []
    for act in (act_there, act_here):
        prepare()
        act("b" * 24)
        act("c" * 24)
        left.append(everything(client))
    assert left[0] == left[1]


@pytest.mark.parametrize("action", ["retry", "kill"])
def test_all_of_a_set(
    sidekiq: RealSidekiq, driver: Driver, inspector: Inspector, client: redis.Redis, action: Any
) -> None:
    """INSP-5, INSP-7: "retry all" and "kill all" of the retry set, in Sidekiq's order of 8.1."""
    left = []
    for theirs in (True, False):
        client.delete("queues", "queue:default", "retry", "dead")
        for number in range(30):
            payload = member(f"{number:024x}", sidekiq.generation, retry_count=number)
            client.zadd("retry", {payload: 4e9 + number})
        client.sadd("processes", "a:1:0123456789ab")
        info = {**INFO, "identity": "a:1:0123456789ab", "version": sidekiq.version}
        client.hset("a:1:0123456789ab", "info", json.dumps(info))
        if theirs:
            driver.set_call("retry", f"{action}_all")
        else:
            assert inspector.sweep("retry", action).done == 30
        found = everything(client)
        if sidekiq.generation < 8:
            found.get("queue:default", []).sort(key=str)  # highest score first
        found["dead"].sort(key=str)  # each has its own score with Sidekiq
        left.append(found)
    assert left[0] == left[1]


def test_a_worker_of_sidekiq_takes_what_was_retried(
    sidekiq: RealSidekiq, driver: Driver, inspector: Inspector, client: redis.Redis
) -> None:
    """INSP-5: the job runs as after Sidekiq's own retry."""
    client.zadd("retry", {member("a" * 24, sidekiq.generation): 4e9})
    found = inspector.find("retry", "a" * 24)
    assert found is not None
    assert inspector.retry(found)
    with sidekiq.worker():
        wait_until(lambda: results(client), 60, "the job")
    assert results(client)[0]["jid"] == "a" * 24


def test_a_process_is_told_to_be_quiet_and_to_stop(
    sidekiq: RealSidekiq, inspector: Inspector
) -> None:
    """INSP-13: through Redis; the process acts at its next heartbeat."""
    with sidekiq.worker() as worker:
        inspector.quiet(worker.identity)
        wait_until(lambda: inspector.processes()[0].quiet, 60, "quiet")
        inspector.stop(worker.identity)
        assert worker.wait(within=40) == 0
    assert inspector.processes() == []


def test_a_deployment_is_marked_alike(
    sidekiq: RealSidekiq, driver: Driver, inspector: Inspector, client: redis.Redis
) -> None:
    """MET-5: keys, stamp and times to live; each side reads the mark of the other."""
    if sidekiq.generation < 7:
        pytest.skip("deploy marks exist from 7.0 on")
    driver.eval('require "sidekiq/deploy"; Sidekiq::Deploy.mark!("v1")')
    assert inspector.mark_deploy("v2") in (True, False)  # the minute may have its label already
    assert not inspector.mark_deploy("v1")
    labels = [mark.label for mark in inspector.activity(minutes=5).marks]
    theirs = driver.eval("Sidekiq::Metrics::Query.new.top_jobs(minutes: 5).marks.map(&:label)")
    assert labels == theirs
    assert "v1" in labels
