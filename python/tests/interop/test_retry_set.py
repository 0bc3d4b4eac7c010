"""Jobs that fail, die or wait on one side, and the actions of the other and of Sidekiq's API."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire import Client
from jobwire.worker import Launcher
from tests.interop.app import make_app
from tests.interop.driver import Driver, Record, RubyError
from tests.interop.python_worker import worker_threads
from tests.interop.sidekiq import RealSidekiq, SidekiqWorker, results

pytestmark = pytest.mark.interop

FAR = 4_000_000_000.5


@pytest.fixture
def fleet(sidekiq: RealSidekiq) -> Iterator[SidekiqWorker]:
    """A Ruby worker in Redis, which serves a queue of its own and promotes nothing for 10 s."""
    with sidekiq.worker(queues=["ruby"], poll=None) as worker:
        yield worker


@pytest.fixture
def python(fleet: SidekiqWorker, server: Server) -> Iterator[Launcher]:
    """A Python worker in the same fleet, which serves `default` and promotes."""
    with worker_threads(server.url, poll=0.1) as launcher:
        yield launcher


def in_set(driver: Driver, name: Any, count: int) -> list[Record]:
    """Wait for this many members, all of which the API can read."""
    wait_until(lambda: driver.set_size(name) == count, 60, f"{count} members of {name}")
    records = driver.set_list(name)
    assert [record.raised for record in records] == [{}] * count
    return records


def wait_for_runs(client: redis.Redis, jids: set[str]) -> None:
    """Wait until exactly these jobs have run to their end, each once."""
    wait_until(lambda: client.llen("app:results") >= len(jids), 60, "the runs")
    assert sorted(report["jid"] for report in results(client)) == sorted(jids)


def is_time(value: object, generation: int) -> bool:
    """True if this is `now` as that generation writes it. [GEN-1] [GEN-2]"""
    if generation == 8:
        return type(value) is int and abs(value / 1000 - time.time()) < 60
    return type(value) is float and abs(value - time.time()) < 60


def test_a_failure_in_python_is_one_to_ruby(
    sidekiq: RealSidekiq, driver: Driver, python: Launcher
) -> None:
    """RETRY-2, RETRY-3, RETRY-4, RETRY-8, GEN-1, GEN-2, GEN-5: in the form of this generation."""
    jid = str(driver.perform_async("FailJob", "böom\0", "ShoutError", backtrace=True, tags=["a"]))
    before = time.time()
    (record,) = in_set(driver, "retry", 1)
    item = json.loads(record.payload)
    assert (record.jid, record.queue, record.klass) == (jid, "default", "FailJob")
    assert record.tags == ["a"]
    assert (item["error_message"], item["retry_count"]) == ("böom\0", 0)
    assert item["error_class"] == "tests.interop.app.ShoutError"
    assert "retried_at" not in item
    assert is_time(item["failed_at"], sidekiq.generation)
    assert is_time(item["enqueued_at"], sidekiq.generation)
    assert record.score is not None
    assert before - 1 + 15 <= record.score < time.time() + 15 + 10
    assert record.at == pytest.approx(record.score)
    for moment in (record.created_at, record.enqueued_at):
        assert moment == pytest.approx(time.time(), abs=60)
    if record.failed_at is not None:  # some generations lack it
        assert record.failed_at == pytest.approx(time.time(), abs=60)
    assert record.error_backtrace
    assert any("tests/interop/app.py" in line for line in record.error_backtrace)

    driver.retry("retry", jid)  # Sidekiq sets the count to -1, and 0 after the second failure

    def failed_twice() -> list[dict[str, Any]]:
        return [each.item for each in driver.set_list("retry") if "retried_at" in each.item]

    (again,) = wait_until(failed_twice, 60, "the second failure")
    assert again["retry_count"] == 0
    assert again["failed_at"] == item["failed_at"]
    assert is_time(again["retried_at"], sidekiq.generation)


def test_ruby_acts_on_failures_in_python(
    driver: Driver, client: redis.Redis, server: Server, python: Launcher
) -> None:
    """KEY-3, PAY-2, RETRY-9, SCHED-5, SCHED-7: retry, kill, delete, reschedule, add_to_queue."""
    with Client(server.url) as pusher:
        jids = pusher.push_bulk("FlakyJob", [[1, name] for name in "abcdefg"], tags=["é/\u2028"])
    killed, deleted, retried, moved, postponed, pushed, lefty = map(str, jids)
    in_set(driver, "retry", 7)
    driver.kill("retry", killed)
    driver.delete("retry", deleted)
    driver.retry("retry", retried)
    driver.add_to_queue("retry", pushed)
    driver.reschedule("retry", postponed, FAR)
    driver.reschedule("retry", moved, time.time() - 1)
    wait_for_runs(client, {retried, pushed, moved})
    assert {record.jid for record in in_set(driver, "retry", 2)} == {postponed, lefty}
    assert driver.find("retry", postponed).score == pytest.approx(FAR)
    (dead,) = in_set(driver, "dead", 1)
    assert dead.jid == killed
    driver.set_call("retry", "retry_all")
    wait_for_runs(client, {retried, pushed, moved, postponed, lefty})
    driver.retry("dead", killed)
    wait_for_runs(client, {retried, pushed, moved, postponed, lefty, killed})
    assert [driver.set_size(name) for name in ("retry", "dead", "schedule")] == [0, 0, 0]
    assert {report["by"] for report in results(client)} == {"python"}


def test_python_honours_what_the_api_did_to_failures_in_ruby(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server
) -> None:
    """RETRY-2, SCHED-5, SCHED-6: jobs that failed in Ruby run in Python, unless deleted."""
    jids = [driver.perform_async("FlakyJob", 1, name) for name in "abcdef"]
    killed, deleted, retried, moved, postponed, pushed = map(str, jids)
    with sidekiq.worker(poll=None):
        in_set(driver, "retry", 6)
    driver.kill("retry", killed)
    driver.delete("retry", deleted)
    driver.retry("retry", retried)
    driver.add_to_queue("retry", pushed)
    driver.reschedule("retry", moved, time.time() - 1)
    driver.reschedule("retry", postponed, FAR)
    with worker_threads(server.url, poll=0.1):
        wait_for_runs(client, {retried, pushed, moved})
        driver.retry("dead", killed)
        wait_for_runs(client, {retried, pushed, moved, killed})
    assert [record.jid for record in in_set(driver, "retry", 1)] == [postponed]


def test_ruby_promotes_and_runs_failures_of_python(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server
) -> None:
    """RETRY-7, RETRY-9: the retry waits in a queue of its own, which only Ruby serves."""
    jid = str(driver.perform_async("FlakyJob", 1, "x", retry_queue="ruby"))
    with worker_threads(server.url):
        in_set(driver, "retry", 1)
    driver.reschedule("retry", jid, 1.0)
    with sidekiq.worker(queues=["ruby"], poll=0.1):
        wait_for_runs(client, {jid})
    assert results(client) == [{"jid": jid, "args": [1, "x"]}]


def test_the_dead_of_python(driver: Driver, client: redis.Redis, python: Launcher) -> None:
    """DEAD-1, DEAD-4, RETRY-1, RETRY-5, EXEC-3: listed by Ruby, and revived by it."""
    jobs = python.app.jobs
    flaky = str(jobs["FlakyJob"].options(retry=0).enqueue(1, "second life"))
    hopeless = str(jobs["FailToDeadJob"].enqueue("hopeless"))
    jobs["FailForgottenJob"].enqueue()
    jobs["FailWithoutRetryJob"].enqueue()
    malformed = [b'{"class":"EchoJob","args":[', b'{"class":NaN}', b'{"a":"\xff"}']
    client.lpush("queue:default", *malformed)
    wait_until(lambda: driver.set_size("dead") == 5, 60, "five dead")
    records = driver.set_list("dead")
    assert {record.payload for record in records if record.jid is None} == set(malformed)
    for jid in (flaky, hopeless):
        record = driver.find("dead", jid)
        assert record.raised == {}
        assert record.item["retry_count"] == 0
        assert record.score == pytest.approx(time.time(), abs=60)
    assert [driver.set_size("retry"), driver.queue_size()] == [0, 0]
    driver.retry("dead", flaky)
    wait_for_runs(client, {flaky})


@pytest.mark.parametrize("payload", [b"[1,2]", b"7", b"1.5", b"null", b"true"])
def test_what_is_no_object_stays_out_of_the_dead_set(
    driver: Driver, client: redis.Redis, server: Server, payload: bytes
) -> None:
    """EXEC-4: Sidekiq loses such a payload, and cannot list a dead set that has one."""
    client.lpush("queue:default", payload)
    with worker_threads(server.url):
        wait_until(
            lambda: client.zrange("jobwire:unreadable", 0, -1) == [payload], 10, "the burial"
        )
    assert driver.set_list("dead") == []
    client.zadd("dead", {payload: time.time()})  # the reason, as real Sidekiq shows it
    with pytest.raises(RubyError, match=r"^(TypeError|NoMethodError)"):
        driver.set_list("dead")


def test_python_promotes_what_ruby_scheduled(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, python: Launcher
) -> None:
    """SCHED-5, SCHED-6, SCHED-7, PUSH-3: due jobs move, in the form of this generation."""
    now = time.time()
    soon = driver.perform_in("EchoJob", 1.5, "soon")
    at = driver.perform_at("EchoJob", now + 1.0, "at")
    elsewhere = driver.perform_in("EchoJob", 1.0, "elsewhere", queue="nobody")
    later = driver.perform_in("EchoJob", 3600, "later")
    assert driver.set_size("schedule") == 4
    wait_for_runs(client, {str(soon), str(at)})
    assert time.time() >= now + 1.5
    assert [record.jid for record in in_set(driver, "schedule", 1)] == [later]
    (waiting,) = driver.queue_list("nobody")
    assert "nobody" in driver.queues()
    assert waiting.jid == elsewhere
    assert is_time(json.loads(waiting.payload)["enqueued_at"], sidekiq.generation)
    assert is_time(json.loads(waiting.payload)["created_at"], sidekiq.generation)
    assert waiting.latency == pytest.approx(0, abs=10)


def test_ruby_promotes_what_python_scheduled(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server
) -> None:
    """SCHED-1, SCHED-2, GEN-4, GEN-5: enqueue_in, enqueue_at, bulk; no job runs before its time."""
    echo = make_app(url=server.url).jobs["EchoJob"]
    with sidekiq.worker(poll=0.1):  # before the push, because it decides the generation
        now = time.time()
        soon = [echo.enqueue_in(1.5, "in"), echo.enqueue_at(now + 1, "at")]
        soon += echo.enqueue_bulk([["bulk"], ["both"]], at=[now + 0.5, now + 1.0])
        later = echo.enqueue_in(3600, "later")
        (last, *_) = driver.set_list("schedule")
        assert (last.jid, last.raised, last.enqueued_at) == (later, {}, None)
        assert last.at == pytest.approx(now + 3600, abs=10)
        item = json.loads(last.payload)
        assert is_time(item["created_at"], sidekiq.generation)
        assert not {"at", "enqueued_at"} & set(item)
        wait_for_runs(client, {str(jid) for jid in soon})
        assert time.time() >= now + 1.5
    echo.app.close()
    assert [record.jid for record in in_set(driver, "schedule", 1)] == [later]
