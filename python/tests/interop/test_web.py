"""Sidekiq's own web page with data of jobwire."""

from __future__ import annotations

import time

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire import Client
from jobwire.worker.base.timings import Timings
from tests.interop.driver import Driver
from tests.interop.python_worker import worker_threads
from tests.interop.sidekiq import PAGES, open_gate

pytestmark = pytest.mark.interop


def test_every_page_shows_what_python_left(
    driver: Driver, client: redis.Redis, server: Server
) -> None:
    """BEAT-3, BEAT-4, BEAT-5, RETRY-3, DEAD-1, EXEC-3, EXEC-4, SCHED-1, KEY-1: all pages answer."""
    often = Timings(heartbeat_interval=0.1)
    with Client(server.url) as pusher, worker_threads(server.url, timings=often) as worker:
        pusher.push("GateJob", ["g", "running é"])
        pusher.push("FailJob", ["retried é"])
        pusher.push("FailJob", ["dead é"], retry=0)
        client.lpush("queue:default", b'{"broken', b"\xff", b"[1]")
        pusher.push("EchoJob", ["later é"], at=time.time() + 3600)
        pusher.push("EchoJob", ["waiting é"], queue="nobody")
        wait_until(lambda: client.zcard("retry") == 1 and client.zcard("dead") == 3, 60, "failures")
        wait_until(lambda: driver.works(), 60, "the work record")
        expected = {
            "/": [],
            "/busy": [worker.identity.split(":")[0], "GateJob", "running é"],
            "/queues": ["nobody"],
            "/queues/nobody": ["EchoJob", "waiting é"],
            "/retries": ["FailJob", "retried é", "RuntimeError"],
            "/morgue": ["FailJob", "dead é", "broken"],
            "/scheduled": ["EchoJob", "later é"],
        }
        pages = driver.eval(PAGES, with_=list(expected))
        open_gate(client, "g")
    assert {path: status for path, (status, _) in pages.items()} == dict.fromkeys(expected, 200)
    missing = {
        path: [word for word in words if word not in pages[path][1]]
        for path, words in expected.items()
    }
    assert missing == {path: [] for path in expected}
