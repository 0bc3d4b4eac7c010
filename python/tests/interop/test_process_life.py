"""Processes of Sidekiq and ours: their end, signals through Redis, pruning, and their pages."""

from __future__ import annotations

import json
import signal
import socket
import time

import pytest
import redis

import jobwire
from harness.servers import Server, wait_until
from jobwire import Client
from tests.interop.driver import Driver, RubyError
from tests.interop.python_worker import worker_process
from tests.interop.sidekiq import RealSidekiq, open_gate, results, started

pytestmark = pytest.mark.interop

BEAT = 30.0  # seconds in which two heartbeats come

EMBED = """
  $embedded = Sidekiq.configure_embed { |config| config.concurrency = 1 }
  $embedded.run
  Sidekiq::ProcessSet.new.map { |process| [process.identity, process.embedded?] }
"""


def test_any_name_is_a_signal(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """SIG-4, SIG-6, SIG-10: Sidekiq sends itself the signal of any name, one at each heartbeat."""
    with sidekiq.worker(poll=None) as worker:
        key = f"{worker.identity}-signals"
        client.lpush(key, "WAT", "TTIN", "KILL")
        wait_until(lambda: client.llen(key) == 2, BEAT, "the first")
        wait_until(lambda: client.llen(key) == 1, BEAT, "the second")
        assert worker.running
        assert worker.wait(within=BEAT) == -signal.SIGKILL


def test_an_embedded_process(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """SIG-11, INSP-19: signals through Redis do nothing, and the API refuses to send them."""
    if sidekiq.generation == 6:
        with pytest.raises(RubyError, match="NoMethodError"):
            driver.eval(EMBED)
        return
    ((identity, embedded),) = driver.eval(EMBED)
    assert embedded is True
    for action in (driver.quiet, driver.stop):
        with pytest.raises(RubyError, match="embedded"):
            action(identity)
    client.lpush(f"{identity}-signals", "KILL")
    wait_until(lambda: not client.exists(f"{identity}-signals"), BEAT, "the next heartbeat")
    client.hset(identity, "beat", "1.5")
    wait_until(lambda: client.hget(identity, "beat") != b"1.5", BEAT, "a heartbeat")
    assert client.hget(identity, "quiet") == b"false"
    driver.eval("$embedded.stop; nil")


def test_a_member_whose_key_has_another_type(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """BEAT-8, BEAT-21, BEAT-22: it ends the scheduler of 7 and 8 for good."""
    client.set("odd:1:0123456789ab", "x")
    client.sadd("processes", "odd:1:0123456789ab", "gone:1:0123456789ab")
    member = {"class": "EchoJob", "args": [], "jid": "a" * 24, "queue": "default", "retry": True}
    with sidekiq.worker(poll=0.2) as worker:
        wait_until(lambda: "WRONGTYPE" in worker.log(), 60, "the error")
        client.delete("odd:1:0123456789ab")  # too late
        client.zadd("schedule", {json.dumps(member): 1})
        if sidekiq.generation == 6:
            wait_until(lambda: results(client), 60, "the promotion")
        else:
            client.hset(worker.identity, "beat", "1.5")
            wait_until(lambda: client.hget(worker.identity, "beat") != b"1.5", BEAT, "a heartbeat")
            assert client.zcard("schedule") == 1
            assert 0 < client.ttl("process_cleanup") <= 60


BEAT_S = 12.0  # seconds until the next heartbeat at the latest [BEAT_S-2]


def test_listed_quieted_and_stopped(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server
) -> None:
    """BEAT_S-1 to BEAT_S-7, GEN-9, SIG-4, FETCH-5: two heartbeats of a real process, so 20 s."""
    with Client(server.url) as pusher:
        jid = pusher.push("GateJob", ["g", "é/\u2028", 10**30], queue="critical")
    options = ["-q", "critical,3", "-q", "default,1", "-c", "3", "-g", "shop"]
    options += ["--label", "blue", "--label", "eu"]
    with worker_process(server.url, *options) as worker:
        wait_until(lambda: started(client) == [jid], 60, "the job's start")
        (process,) = driver.processes()
        assert process.identity == worker.identity
        assert (process.hostname, process.pid) == (socket.gethostname(), worker.pid)
        assert (process.tag, process.labels) == ("shop", ["blue", "eu"])
        assert (process.concurrency, sorted(process.queues)) == (3, ["critical", "default"])
        assert (process.busy, process.quiet) == (0, False)
        assert process.info["version"] == f"jobwire {jobwire.__version__}"
        assert process.info["started_at"] == pytest.approx(time.time(), abs=60)
        assert process.info["beat"] == pytest.approx(time.time(), abs=60)
        assert process.rss is not None
        assert 1_000 < process.rss < 1_000_000  # KiB
        assert process.info["rtt_us"] >= 0

        # One signal a beat: the first beat shows the job and quiets, the second stops.
        driver.quiet(worker.identity)
        driver.stop(worker.identity)
        wait_until(lambda: driver.processes()[0].busy == 1, BEAT_S, "the busy count")
        (work,) = driver.works()
        assert (work.identity, work.queue, work.jid) == (worker.identity, "critical", jid)
        assert work.item["args"] == ["g", "é/\u2028", 10**30]
        assert work.run_at == pytest.approx(time.time(), abs=60)
        assert work.run_at % 1 == 0
        assert driver.stats()["workers_size"] == 1
        wait_until(lambda: "quiet:" in worker.log(), 60, "the end of fetching")
        late = driver.perform_async("EchoJob", "too late")

        wait_until(lambda: driver.processes()[0].quiet, BEAT_S, "the quiet flag")
        wait_until(lambda: "stopping" in worker.log(), 60, "the stop")
        assert driver.processes()[0].busy == 1  # the process waits for the job
        open_gate(client, "g")
        assert worker.wait(within=10) == 0
    assert driver.processes() == []
    assert driver.works() == []
    assert client.keys(f"{worker.identity}:work*") == []
    assert [report["jid"] for report in results(client)] == [jid]
    assert [record.jid for record in driver.queue_list()] == [late]
    assert driver.stats()["processed"] == 1


def test_the_dead_are_pruned_and_term_leaves_nothing(
    driver: Driver, client: redis.Redis, server: Server
) -> None:
    """BEAT_S-7, BEAT_S-8, SIG-1: a process without a hash leaves the list when a worker boots."""
    client.sadd("processes", "gone:1:0123456789ab")
    with worker_process(server.url) as worker:
        wait_until(lambda: client.smembers("processes") == {worker.identity.encode()}, 60)
        assert [process.identity for process in driver.processes()] == [worker.identity]
        assert worker.stop() == 0
    assert driver.processes() == []
