"""The harness alone: Ruby enqueues, Ruby runs. A failure here is not a fault of jobwire."""

from __future__ import annotations

import base64
import json
import signal
import zlib
from typing import Any

import pytest
import redis

from harness.servers import wait_until
from tests.interop.driver import Driver, RubyError
from tests.interop.shapes import exact, nested
from tests.interop.sidekiq import RealSidekiq, open_gate, results, started

pytestmark = pytest.mark.interop


ARGS: list[list[Any]] = [
    [],
    [None, True, False, 0, -1, ""],
    [9007199254740993, 130775545883395173, -(2**63), 2**200, -(10**30)],
    [0.1, 0.0011285007931292057, 1673626980.0058892, 5e-324, 1.7976931348623157e308, -0.0, 1e22],
    [1.0, -2.0, 100000000000000000000.0, 1e-5],
    [[], {}, [[], {}], {"": []}, {"a": {"b": [None]}}],
    ["\0", "a\0b", "\x7f", "\u2028", "\\ / \" ' \b\f\n\r\t", "é", "\U0001f600", "日本"],
    [{"\0": 1, "\U0001f600": 2, "a b": 3}],
    nested(50),
]


def test_it_is_the_generation_it_claims_to_be(sidekiq: RealSidekiq, driver: Driver) -> None:
    major_minor = sidekiq.version.rpartition(".")[0]
    assert driver.version().startswith(major_minor + ".")


def test_arguments_of_every_shape_come_back_exactly(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    jids = [driver.perform_async("EchoJob", *args) for args in ARGS]
    texts = [json.loads(record.payload)["args"] for record in reversed(driver.queue_list())]
    assert exact(texts) == exact(ARGS)
    with sidekiq.worker():
        wait_until(lambda: len(results(client)) == len(ARGS), 60, "all results")
    ran = {result["jid"]: result["args"] for result in results(client)}
    assert exact([ran[jid] for jid in jids]) == exact(ARGS)


def test_every_way_to_push(driver: Driver, client: redis.Redis) -> None:
    raw = driver.push({"class": "NoSuch::RubyJob", "args": [1], "queue": "low", "extra": {"k": []}})
    assert [(r.jid, r.klass, r.args) for r in driver.queue_list("low")] == [
        (raw, "NoSuch::RubyJob", [1])
    ]
    assert driver.queue_list("low")[0].item["extra"] == {"k": []}
    optional = driver.perform_async("Made::UpJob", 2, queue="low", retry=3, tags=["x"])
    assert driver.queue_list("low")[0].jid == optional
    assert driver.queue_list("low")[0].item["retry"] == 3
    bulk = driver.push_bulk({"class": "EchoJob", "args": [[1], [2]]})
    bulk += driver.perform_bulk("Reports::Nightly::NestedJob", [[3]])
    assert [r.jid for r in reversed(driver.queue_list())] == bulk
    later = driver.perform_in("EchoJob", 3600, "later")
    latest = driver.perform_at("EchoJob", 4_000_000_000.5, "latest")
    assert [(r.jid, r.args) for r in driver.set_list("schedule")] == [
        (latest, ["latest"]),
        (later, ["later"]),
    ]
    assert driver.find("schedule", str(latest)).score == 4_000_000_000.5
    assert set(driver.queues()) == {"default", "low"}
    assert client.llen("queue:low") == driver.queue_size("low") == 2
    stats = driver.stats()
    assert (stats["enqueued"], stats["scheduled_size"]) == (5, 2)


def test_failures_and_what_the_api_does_with_them(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    jids = [
        driver.perform_async("FailWithBacktraceJob", f"boom {i}", "ShoutError") for i in range(4)
    ]
    killed, deleted, moved, retried = map(str, jids)
    dead = driver.perform_async("FailToDeadJob", "at once")
    with sidekiq.worker(poll=None):
        wait_until(lambda: driver.set_size("retry") == 4, 60, "four retries")
        wait_until(lambda: driver.set_size("dead") == 1, 60, "one dead job")
    record = driver.find("retry", killed)
    assert record.raised == {}
    assert record.item["error_class"] == "ShoutError"
    assert record.item["error_message"] == "boom 0"
    stored = json.loads(record.payload)["error_backtrace"]
    assert record.error_backtrace == json.loads(zlib.decompress(base64.b64decode(stored)))
    assert record.score == record.at
    assert driver.set_list("dead")[0].jid == dead

    driver.kill("retry", killed)
    driver.delete("retry", deleted)
    driver.reschedule("retry", moved, 4_000_000_000.5)
    driver.retry("retry", retried)
    assert {r.jid for r in driver.set_list("dead")} == {killed, dead}
    assert [r.jid for r in driver.set_list("retry")] == [moved]
    assert driver.find("retry", moved).score == pytest.approx(4_000_000_000.5)
    assert [r.jid for r in driver.queue_list()] == [retried]
    with pytest.raises(RubyError, match=f"KeyError: no job {deleted} in retry"):
        driver.retry("retry", deleted)


def test_due_retries_are_promoted(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    jid = str(driver.perform_async("FlakyJob", 1, "second time"))
    with sidekiq.worker(poll=0.2):
        wait_until(lambda: driver.set_size("retry") == 1, 60, "the retry")
        driver.reschedule("retry", jid, 1.0)
        wait_until(lambda: results(client), 60, "the second run")
    assert results(client) == [{"jid": jid, "args": [1, "second time"]}]


def test_processes_and_works_and_signals(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """Slow, because it waits for Sidekiq's heartbeat, which is every 5 s (6.4) or 10 s."""
    jid = driver.perform_async("GateJob", "g", queue="critical")
    queues = ["critical,3", "default,1"]
    with sidekiq.worker(queues=queues, concurrency=3, options=["-g", "tag"]) as worker:
        wait_until(lambda: started(client) == [jid], 60, "the job's start")
        driver.quiet(worker.identity)
        (work,) = wait_until(driver.works, 12, "its work record")
        assert (work.identity, work.queue, work.jid) == (worker.identity, "critical", jid)
        # 6.4 writes the work record first, in a transaction of its own.
        wait_until(lambda: driver.processes()[0].busy == 1, 2, "the busy count")
        (process,) = driver.processes()
        assert (process.identity, process.pid, process.tag) == (worker.identity, worker.pid, "tag")
        assert process.concurrency == 3
        assert sorted(process.queues) == ["critical", "default"]
        wait_until(lambda: "Received TSTP" in worker.log(), 12, "quiet")
        late = driver.perform_async("EchoJob", "too late")
        open_gate(client, "g")
        wait_until(lambda: results(client), 60, "the job's end")
        driver.stop(worker.identity)
        assert worker.wait(within=25) == 0
    assert driver.processes() == []
    assert [result["jid"] for result in results(client)] == [jid]
    assert [record.jid for record in driver.queue_list()] == [late]


def test_stop_puts_unfinished_jobs_back(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    jid = driver.perform_async("GateJob", "closed")
    payload = driver.queue_list()[0].payload
    with sidekiq.worker(timeout=1, concurrency=1) as worker:
        wait_until(lambda: started(client) == [jid], 60, "the job's start")
        assert worker.stop() == 0
        assert not worker.running
    assert [record.payload for record in driver.queue_list()] == [payload]


def test_a_killed_worker_is_gone_at_once(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    with sidekiq.worker() as worker:
        worker.kill()
        assert worker.wait() == -signal.SIGKILL
        assert client.sismember("processes", worker.identity)


def test_malformed_payloads_can_be_looked_at(driver: Driver, client: redis.Redis) -> None:
    """INSP-28: the bytes are shown."""
    client.zadd("dead", {b'{"jid": nonsense \xff': 1.5})
    (record,) = driver.set_list("dead")
    assert record.payload == b'{"jid": nonsense \xff'
    assert record.score == 1.5


def test_any_ruby(driver: Driver) -> None:
    assert driver.eval("with.map { |n| n ** 40 }", [2, 3]) == [2**40, 3**40]
    with pytest.raises(RubyError, match="ZeroDivisionError: divided by 0"):
        driver.eval("1 / 0")
    with pytest.raises(RubyError, match="SyntaxError"):
        driver.eval("1 +")
    driver.flush()
    assert driver.queues() == []
