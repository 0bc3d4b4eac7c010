"""Ruby and Python workers side by side on the same queues."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire import Client
from jobwire.application.config import FetchMode
from tests.interop.driver import Driver
from tests.interop.python_worker import worker_threads
from tests.interop.sidekiq import RealSidekiq, results

pytestmark = pytest.mark.interop

JOBS = 300
FAILING = 30


@pytest.mark.parametrize("fetch", ["reliable", "basic"])
def test_each_job_runs_once(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server, fetch: FetchMode
) -> None:
    """FETCH-1, REL-1, REL-2, STAT-1, STAT-2: and Sidekiq's Stats agree with the executions."""
    queues = ["critical", "default"]
    with (
        sidekiq.worker(queues=queues, concurrency=4) as ruby,
        worker_threads(server.url, queues=queues, concurrency=4, fetch=fetch),
        Client(server.url) as python,
    ):
        half = [[0.01, number] for number in range(JOBS // 2)]
        jids = python.push_bulk("SleepJob", half, queue="critical")
        jids += driver.perform_bulk("SleepJob", half)
        failed = python.push_bulk("FailJob", [[]] * FAILING)
        wait_until(lambda: client.llen("app:results") >= JOBS, 60, "all runs")
        wait_until(lambda: client.zcard("retry") == FAILING, 60, "all failures")
        ruby.stop()  # which writes its last statistics
    reports = results(client)
    assert Counter(report["jid"] for report in reports) == Counter(jids)
    assert {report.get("by") for report in reports} == {"python", None}  # both took part
    assert Counter(record.jid for record in driver.set_list("retry")) == Counter(failed)
    stats = driver.stats()
    assert (stats["processed"], stats["failed"]) == (JOBS + FAILING, FAILING)
    assert (stats["enqueued"], stats["retry_size"]) == (0, FAILING)
    history = "history = Sidekiq::Stats::History.new(2)"
    days = driver.eval(f"{history}; [history.processed, history.failed].map {{ _1.values.sum }}")
    assert days == [JOBS + FAILING, FAILING]


def test_pollers_race_for_due_jobs(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server
) -> None:
    """SCHED-5: all jobs are due at one moment, while both pollers look fifty times a second."""
    with (
        sidekiq.worker(queues=["nobody"], poll=0.02),
        worker_threads(server.url, queues=["nobody"], poll=0.02),
        Client(server.url) as python,
    ):
        due = time.time() + 5.5  # both pollers have looked once by then
        half: list[list[Any]] = [[number] for number in range(JOBS // 2)]
        jids = python.push_bulk("EchoJob", half, at=due)
        jids += driver.push_bulk({"class": "EchoJob", "args": half, "at": due})
        wait_until(lambda: client.llen("queue:default") >= JOBS, 60, "all promotions")
        wait_until(lambda: client.zcard("schedule") == 0, 60, "an empty schedule")
    assert time.time() >= due
    with sidekiq.worker(concurrency=4), worker_threads(server.url):
        wait_until(lambda: client.llen("app:results") >= JOBS, 60, "all runs")
    assert Counter(report["jid"] for report in results(client)) == Counter(jids)
    assert driver.queue_size() == 0
