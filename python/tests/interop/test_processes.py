"""A Python worker in Sidekiq's API and web page, and under their commands."""

from __future__ import annotations

import socket
import time

import pytest
import redis

import jobwire
from harness.servers import Server, wait_until
from jobwire import Client
from tests.interop.driver import Driver
from tests.interop.python_worker import worker_process
from tests.interop.sidekiq import RealSidekiq, open_gate, results, started

pytestmark = pytest.mark.interop

BEAT = 12.0  # seconds until the next heartbeat at the latest [BEAT-2]


def test_listed_quieted_and_stopped(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server
) -> None:
    """BEAT-1 to BEAT-7, GEN-9, SIG-4, FETCH-5: two heartbeats of a real process, so 20 s."""
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
        wait_until(lambda: driver.processes()[0].busy == 1, BEAT, "the busy count")
        (work,) = driver.works()
        assert (work.identity, work.queue, work.jid) == (worker.identity, "critical", jid)
        assert work.item["args"] == ["g", "é/\u2028", 10**30]
        assert work.run_at == pytest.approx(time.time(), abs=60)
        assert work.run_at % 1 == 0
        assert driver.stats()["workers_size"] == 1
        wait_until(lambda: "quiet:" in worker.log(), 60, "the end of fetching")
        late = driver.perform_async("EchoJob", "too late")

        wait_until(lambda: driver.processes()[0].quiet, BEAT, "the quiet flag")
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
    """BEAT-7, BEAT-8, SIG-1: a process without a hash leaves the list when a worker boots."""
    client.sadd("processes", "gone:1:0123456789ab")
    with worker_process(server.url) as worker:
        wait_until(lambda: client.smembers("processes") == {worker.identity.encode()}, 60)
        assert [process.identity for process in driver.processes()] == [worker.identity]
        assert worker.stop() == 0
    assert driver.processes() == []
