"""Sidekiq where recordings cannot show it: queues and their order, signals, refusals, texts."""

from __future__ import annotations

import signal
import time
from collections import Counter
from typing import Any, cast

import pytest
import redis

from harness.servers import wait_until
from tests.interop.commands import commands
from tests.interop.driver import Driver, RubyError
from tests.interop.sidekiq import RealSidekiq, open_gate, results, started

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


NAMES = ("first", "second", "third")
JOBS = 60


def orders(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, queues: list[str]
) -> list[tuple[str, ...]]:
    """Return the queues of each BRPOP of one worker, while it takes a number of jobs."""
    for number in range(JOBS):
        driver.perform_async("EchoJob", number, queue=NAMES[-1])
    with (
        commands(client) as seen,
        sidekiq.worker(queues=queues, concurrency=1),
    ):
        wait_until(lambda: len(results(client)) == JOBS, 60, "all jobs")
    fetches = [command for command in seen if command[0] == "BRPOP"]
    return [tuple(key.removeprefix("queue:") for key in keys) for _, *keys, _ in fetches]


def test_strict_order(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """[FETCH-2] Every fetch tries the queues in the order of the list."""
    assert set(orders(sidekiq, driver, client, [*NAMES])) == {NAMES}


def test_weighted_order(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """[FETCH-3] [FETCH-8] Each fetch draws again.

    Every queue is in it once, the heavy one mostly first.
    """
    drawn = orders(sidekiq, driver, client, ["first,8", "second,1", "third,1"])
    assert len(drawn) >= JOBS
    assert {tuple(sorted(order)) for order in drawn} == {NAMES}
    assert len(set(drawn)) > 1
    # 8 of 10 on average; below 5 of 10 once in 10 million runs.
    assert Counter(order[0] for order in drawn)["first"] > len(drawn) / 2


def test_an_idle_worker(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """[FETCH-10] [FETCH-11] One command in two seconds for each executor, and no delay."""
    with sidekiq.worker(concurrency=2, poll=None):
        with commands(client) as seen:
            time.sleep(5)  # the interval that is looked at
        fetches = [command for command in seen if command[0] == "BRPOP"]
        assert 0 < len(fetches) <= 2 * 4
        pushed = time.monotonic()
        driver.perform_async("EchoJob")
        wait_until(lambda: results(client), 60, "the job")
        assert time.monotonic() - pushed < 5


def test_no_job_waits_behind_another(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """[FETCH-12] A worker takes no job before one of its executors is idle."""
    driver.perform_async("GateJob", "g")
    for number in range(5):
        driver.perform_async("EchoJob", number)
    with sidekiq.worker(concurrency=1, poll=None):
        wait_until(lambda: started(client), 60, "the gate")
        assert client.llen("queue:default") == 5
        with sidekiq.worker(concurrency=1, poll=None):
            wait_until(lambda: len(results(client)) == 5, 60, "the jobs in another worker")
        open_gate(client, "g")
        wait_until(lambda: len(results(client)) == 6, 60, "the end")


def test_a_key_that_is_not_a_list(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """[FETCH-7] [FETCH-13] It stops the queues behind it; the log of 7 and 8 does not name it."""
    client.set("queue:broken", "not a list")
    driver.perform_async("EchoJob", queue="good")
    with sidekiq.worker(queues=["broken", "good"], concurrency=1, poll=None) as worker:
        wait_until(lambda: "WRONGTYPE" in worker.log(), 60, "the error")
        assert ("queue:broken" in worker.log()) is (sidekiq.generation == 6)
        assert results(client) == []


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


def test_jobs_without_arguments(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """EXEC-10, EXEC-1: without `args` there are no arguments; one array is one argument."""
    texts = [
        '{"class":"EchoJob","jid":"missing"}',
        '{"class":"EchoJob","jid":"null","args":null}',
        '{"class":"EchoJob","jid":"array","args":[[1,2]]}',
    ]
    assert fates(sidekiq, client, *texts) == [RUN] * 3
    assert [one["args"] for one in results(client)] == [[], [], [[1, 2]], []]


def test_encoded_arguments(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """EXEC-13: without the extensions, the job runs on the encoded text."""
    texts = [
        f'{{"class":"EchoJob","jid":"{mark}","args":["eJyLjgUAARUAuQ=="],"{mark}":true}}'
        for mark in ("encrypt", "compressed")
    ]
    assert fates(sidekiq, client, *texts) == [RUN] * 2
    assert [one["args"] for one in results(client)] == [["eJyLjgUAARUAuQ=="]] * 2 + [[]]
