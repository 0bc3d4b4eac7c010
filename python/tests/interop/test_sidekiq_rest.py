"""Sidekiq where recordings cannot show it: queues and their order, signals, refusals, texts."""

from __future__ import annotations

import json
import signal
from typing import Any, cast

import pytest
import redis

from harness.servers import wait_until
from tests.interop.commands import commands
from tests.interop.driver import Driver, RubyError
from tests.interop.sidekiq import RealSidekiq, results, started

pytestmark = pytest.mark.interop


def test_a_key_that_is_no_list(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """FETCH-7, FETCH-13: a bad key stops the queues behind it; 7 and 8 do not name it. ENV-3: two
    seconds of blocking.

    EXEC-6, STAT-1: a job that middleware skipped counts as processed. SIG-2: quiet ends fetching.
    """
    client.set("queue:bad", "no list")
    jid = driver.perform_async("EchoJob")
    skipped = driver.push({"class": "EchoJob", "args": [], "skip": True})
    with sidekiq.worker(queues=["bad", "default"], concurrency=1, poll=None) as worker:
        wait_until(lambda: "WRONGTYPE" in worker.log(), 60, "the complaint")
        assert ("queue:bad" in worker.log()) is (sidekiq.generation == 6)
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


def test_times_that_cannot_be_meant(driver: Driver, client: redis.Redis) -> None:
    """SCHED-4: Sidekiq accepts milliseconds and negative times; it refuses other values."""
    for at in (-5.0, 1_795_192_067_000):
        driver.push({"class": "EchoJob", "args": [], "at": at})
    found: Any = client.zrange("schedule", 0, -1, withscores=True)
    scores = [score for _, score in found]
    assert scores == [-5.0, 1_795_192_067_000]
    with pytest.raises(RubyError, match="ArgumentError"):
        driver.push({"class": "EchoJob", "args": [], "at": "tomorrow"})


RUN, BURIED = "run", "in dead"
LAST = '{"class":"EchoJob","args":[],"jid":"last","queue":"default","retry":true}'


def nested(levels: int) -> str:
    """Return a payload with this many levels, the object and `args` being the first two."""
    inner = "[" * (levels - 2) + "]" * (levels - 2)
    return f'{{"class":"SleepJob","jid":"nested {levels}","args":[0,{inner}]}}'


def fates(sidekiq: RealSidekiq, client: redis.Redis, *texts: str | bytes) -> list[str]:
    """Return what a worker did with each payload."""
    client.lpush("queue:default", *texts, LAST)
    with sidekiq.worker(poll=None, concurrency=1) as worker:
        wait_until(lambda: any(one["jid"] == "last" for one in results(client)), 60, "the last job")
        worker.stop()
    ran = {one["jid"] for one in results(client)}
    dead = set(cast("list[bytes]", client.zrange("dead", 0, -1)))

    def fate(text: Any) -> str:
        raw = text if isinstance(text, bytes) else text.encode()
        if any(jid is not None and f'"{jid}"'.encode() in raw for jid in ran):
            return RUN
        return BURIED if raw in dead else "lost"

    return [fate(text) for text in texts]


def test_levels(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """EXEC-9, PAY-3: 8 begins a job with one level more than 6 and 7, and cannot write it back."""
    levels = (99, 100, 101, 102)
    seen = fates(sidekiq, client, *map(nested, levels))
    last = "lost" if sidekiq.generation == 8 else BURIED  # the report of its end fails
    assert seen == [RUN, RUN, last, BURIED]
    begun = [f"nested {level}" for level in levels[: 3 if sidekiq.generation == 8 else 2]]
    assert started(client) == begun


def test_comments(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """EXEC-9, PAY-1: 6 and 7 run JSON with comments, 8 kills it."""
    texts = [
        '{"class":"EchoJob",/* why */"args":[],"jid":"block"}',
        '{"class":"EchoJob","args":[],"jid":"line"}// why\n',
    ]
    assert fates(sidekiq, client, *texts) == [BURIED if sidekiq.generation == 8 else RUN] * 2


def test_text_that_is_cut_off(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """EXEC-3, EXEC-11, EXEC-4: killed as its bytes, not counted; other JSON is lost."""
    texts = ['{"class":"EchoJob","args":[', "", "hello", "[1]", "5", "null"]
    assert fates(sidekiq, client, *texts) == [BURIED] * 3 + ["lost"] * 3
    counts = [
        int(cast("bytes", client.get(f"stat:{name}") or 0)) for name in ("processed", "failed")
    ]
    assert counts == [1, 0]


def test_encoded_arguments(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """EXEC-13: without the extensions, the job runs on the encoded text."""
    texts = [
        f'{{"class":"EchoJob","jid":"{mark}","args":["eJyLjgUAARUAuQ=="],"{mark}":true}}'
        for mark in ("encrypt", "compressed")
    ]
    assert fates(sidekiq, client, *texts) == [RUN] * 2
    assert [one["args"] for one in results(client)] == [["eJyLjgUAARUAuQ=="]] * 2 + [[]]


# -- Scheduling and promotion by real Sidekiq: odd times, odd members, several schedulers


OPTIONS = ["-r", "./endings.rb"]
IDLE = ("idle",)  # the queue of a worker that only promotes


def member(jid: str, **fields: Any) -> str:
    return json.dumps({"class": "EchoJob", "args": [], "jid": jid, "queue": "later", **fields})


def queued(client: redis.Redis, name: str = "later") -> list[dict[str, Any]]:
    """Return the payloads of a queue, the one that was pushed last first."""
    return [json.loads(text) for text in cast("list[bytes]", client.lrange(f"queue:{name}", 0, -1))]


def jids(client: redis.Redis, name: str = "later") -> list[str]:
    return [item["jid"] for item in queued(client, name)]


def test_times_that_are_none(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SCHED-4, SCHED-3: nil, NaN and a text are pushed at once, like the past."""
    client.lpush("queue:work", json.dumps({"class": "TimesJob", "args": [], "jid": "j"}))
    with sidekiq.worker(queues=["work"], poll=None, concurrency=1, options=OPTIONS):
        wait_until(lambda: client.lrange("app:times", -1, -1) == [b"end"], 60, "all pushes")
    pushed = [item["args"][0] for item in queued(client, "default")]
    assert pushed == ["text", "-10**10", "-5", "NaN", "nil"]
    assert not client.exists("schedule")


VANISHING: dict[str, dict[str, Any]] = {
    "no-args": {"args": ...},
    "no-class": {"class": ...},
    "args-null": {"args": None},
    "args-text": {"args": "[1]"},
    "args-object": {"args": {"a": 1}},
    "at-null": {"at": None},
    "at-text": {"at": "12"},
    "class-null": {"class": None},
    "class-number": {"class": 5},
    "tags-text": {"tags": "x"},
}


def test_members_that_vanish(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SCHED-9: all Sidekiqs lose due members that their own client would refuse."""
    with sidekiq.worker(queues=IDLE, poll=0.2):
        for name, change in VANISHING.items():
            item = {**json.loads(member(name)), **change}
            kept = {field: value for field, value in item.items() if value is not ...}
            client.zadd("schedule", {json.dumps(kept): 1.0, member(f"after-{name}"): 2.0})
            wait_until(lambda n=name: f"after-{n}" in jids(client), 60, name)  # type: ignore[misc]
    assert jids(client) == [f"after-{name}" for name in reversed(VANISHING)]
    for key in ("schedule", "retry", "dead"):
        assert client.zcard(key) == 0


def test_members_that_cannot_be_promoted(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SCHED-9, SCHED-24, SCHED-26: they vanish, and those behind them wait for the next look."""
    client.set("queue:broken", "not a list")
    bad = ['{"class":', "[1]", member("stuck", queue="broken")]
    client.zadd("schedule", {text: float(n) for n, text in enumerate(bad)})
    client.zadd("schedule", {member("good"): 9.0})
    with sidekiq.worker(queues=IDLE, poll=0.3):
        wait_until(lambda: jids(client) == ["good"], 60, "the good one")
    assert client.zcard("schedule") == client.zcard("dead") == client.zcard("retry") == 0


@pytest.mark.parametrize("queue", ["", None, 5])
def test_members_without_a_queue(sidekiq: RealSidekiq, client: redis.Redis, queue: Any) -> None:
    """SCHED-9: 5 goes to `queue:5`."""
    client.zadd("schedule", {member("odd", queue=queue): 1.0, member("good"): 9.0})
    with sidekiq.worker(queues=IDLE, poll=0.3):
        wait_until(lambda: jids(client) == ["good"], 60, "the good one")
    assert client.zcard("schedule") == client.zcard("dead") == 0
    found = {key.decode() for key in cast("list[bytes]", client.keys("queue:*"))}
    assert found - {"queue:later"} == ({"queue:5"} if queue == 5 else set())


def test_client_middleware_runs_at_a_promotion(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SCHED-28: that of the process that promotes, with the payload's jid."""
    client.zadd("schedule", {member("s"): 1.0})
    client.zadd("retry", {member("r"): 1.0})
    with sidekiq.worker(queues=IDLE, poll=0.5, options=OPTIONS):
        wait_until(lambda: client.llen("queue:later") == 2, 60, "the promotions")
    assert client.lrange("app:pushed", 0, -1) == [b"r", b"s"]
