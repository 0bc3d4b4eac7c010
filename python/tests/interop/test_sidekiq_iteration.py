"""Keys that Sidekiq 7.3 and 8.1 keep of an iteration, and counts in their metrics."""

from __future__ import annotations

import json
import re
import signal
import struct
import time
from typing import Any, cast

import pytest
import redis

from harness.servers import wait_until
from tests.interop.commands import commands
from tests.interop.driver import Driver
from tests.interop.sidekiq import RealSidekiq, items, results

pytestmark = pytest.mark.interop

ITEMS, PAUSE = 130, 0.1  # longer than the first heartbeat of 7.3, which writes its metrics
BOUNDS = [20, 30, 45, 65, 100, 150, 225, 335, 500, 750, 1100, 1700, 2500, 3800, 5750, 8500]
BOUNDS += [13000, 20000, 30000, 45000, 65000, 100000, 150000, 225000, 335000, 10**20]


def state(client: redis.Redis, jid: str) -> dict[str, str]:
    found = cast("dict[bytes, bytes]", client.hgetall(f"it-{jid}"))
    return {name.decode(): value.decode() for name, value in found.items()}


def keys(client: redis.Redis, pattern: str) -> dict[str, int]:
    """Return the keys that match the whole pattern, with their times to live."""
    found = [key.decode() for key in cast("Any", client.keys("*"))]
    return {key: client.ttl(key) for key in found if re.fullmatch(pattern, key)}


def check_metrics(client: redis.Redis, generation: int) -> None:
    """MET-1 to MET-3, MET-7, MET-8, MET-9, MET-11: by their keys, fields and times to live."""
    day = time.strftime("%y%m%d" if generation == 8 else "%Y%m%d", time.gmtime())
    minute = rf"j\|{day}\|(0|[1-9]|1\d|2\d):{'[0-5][0-9]' if generation == 8 else '[0-9]+'}"
    minutes = keys(client, minute)
    assert minutes
    assert all(28_700 < ttl <= 28_800 for ttl in minutes.values())
    tens = keys(client, rf"j\|{day}\|(0|[1-9]|1\d|2\d):[0-5]")
    if generation == 8:
        assert tens
        assert all(259_100 < ttl <= 259_200 for ttl in tens.values())
    totals: dict[str, int] = {}
    for key in minutes:
        for field, value in cast("dict[bytes, bytes]", client.hgetall(key)).items():
            totals[field.decode()] = totals.get(field.decode(), 0) + int(value)
    assert (totals["EchoJob|p"], totals["FailJob|p"], totals["FailJob|f"]) == (2, 1, 1)
    assert {"EchoJob|f", "FailJob|ms"}.isdisjoint(totals)
    slept = totals["SleepJob|ms"]
    assert slept >= 120
    head = r"h\|" if generation == 8 else ""
    mine = keys(client, head + r"SleepJob-\d+-\d+:\d+")
    ((histogram, ttl),) = mine.items()
    assert 28_700 < ttl <= 28_800
    assert not keys(client, head + r"FailJob-.*")
    raw = cast("bytes", client.get(histogram)).ljust(2 * len(BOUNDS), b"\0")
    counters = struct.unpack(f">{len(BOUNDS)}H", raw)
    assert [index for index, count in enumerate(counters) if count] == [
        next(index for index, bound in enumerate(BOUNDS) if slept < bound)
    ]
    index = counters.index(1)
    saturated = client.bitfield(histogram, "SAT").incrby("u16", f"#{index}", 70_000).execute()
    assert saturated == [65_535]


def test_iteration_and_metrics(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """ITER-1, ITER-2, ITER-3, ITER-4, ITER-5, ITER-6, ITER-7, MET-1, MET-2, MET-3, MET-7, MET-8,
    MET-9, MET-11.

    One long job and a few short ones show them, because beats and flushes take their time.
    """
    if sidekiq.generation == 6:
        pytest.skip("6.4 has neither iterations nor metrics")
    long = str(driver.perform_async("IterJob", ITEMS, PAUSE))
    key = f"it-{long}"
    cancelled = ""
    with sidekiq.worker(concurrency=3, poll=None) as worker:
        wait_until(lambda: items(client, long), 60, "the first item")
        began = time.time()
        if sidekiq.generation == 8:
            cancelled = str(driver.perform_async("IterJob", ITEMS * 10, PAUSE))
            wait_until(lambda: items(client, cancelled), 60, "the first item of the other job")
            with commands(client) as seen:
                answer = driver.eval("Sidekiq::Client.new.cancel!(with)", cancelled)
            assert ["HSETNX", f"it-{cancelled}", "cancelled", str(answer)] in seen
            assert type(answer) is int
            assert answer == pytest.approx(time.time(), abs=10)
        driver.perform_async("EchoJob")
        driver.perform_async("EchoJob")
        driver.perform_async("FailJob")
        driver.perform_async("SleepJob", 0.12)

        wait_until(lambda: state(client, long), 8, "the periodic flush")
        assert time.time() - began == pytest.approx(5, abs=1)
        flushed = state(client, long)
        assert {name: flushed[name] for name in ("ex", "rt")} == {"ex": "1", "rt": "0"}
        # The state may name the item that is about to run, and one more may have run since.
        assert items(client, long)[-1] - json.loads(flushed["c"]) in (-1, 0, 1)
        assert 2_591_990 < client.ttl(key) <= 2_592_000
        if cancelled:  # the job counts as done, and its on_complete runs
            wait_until(lambda: not client.exists(f"it-{cancelled}"), 8, "the cancelled one's end")
            assert len(items(client, cancelled)) < 70
            assert [result["jid"] for result in results(client)][-1:] == [cancelled]

        wait_until(lambda: keys(client, r"j\|.*"), 12, "the heartbeat")
        check_metrics(client, sidekiq.generation)
        with commands(client) as seen:
            worker.signal(signal.SIGTERM)
            assert worker.wait() == 0
    # State first, then the payload at the head of its queue.
    names = [command[:2] for command in seen]
    pushed = names.index(["LPUSH", "queue:default"])
    assert names.index(["HSET", key]) < pushed
    assert ["HSET", key] not in names[pushed:]
    stopped = state(client, long)
    assert (stopped["ex"], "cancelled" in stopped) == ("1", False)
    assert 5 < float(stopped["rt"]) < 60
    cursor = json.loads(stopped["c"])
    first_run = items(client, long)
    assert first_run == list(range(cursor))
    (payload,) = cast("list[bytes]", client.lrange("queue:default", 0, -1))
    item = json.loads(payload)
    assert (item["jid"], item["class"]) == (long, "IterJob")
    assert {"retry_count", "failed_at", "error_message"}.isdisjoint(item)

    early = ""
    if sidekiq.generation == 8:  # cancelled before it has a cursor: a trap that ITER-7 names
        early = str(driver.perform_async("IterJob", 3, 0))
        driver.eval("Sidekiq::Client.new.cancel!(with)", early)
    with sidekiq.worker(poll=None):
        done = len(results(client)) + 1
        wait_until(lambda: len(results(client)) == done, 60, "the end of the iteration")
        wait_until(lambda: not client.exists(key), 60, "the end of its state")
    # The item at the cursor is the first of the second run.
    assert items(client, long) == list(range(ITEMS))
    retries = [record.item for record in driver.set_list("retry") if record.jid == early]
    assert [each["error_class"] for each in retries] == (["TypeError"] if early else [])
