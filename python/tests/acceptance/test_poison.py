"""A job that kills every worker that runs it goes to the dead set."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Reaper, Server, wait_until
from jobwire import Client
from tests.workers import Workers

APP = "tests.apps.killing:app"


@pytest.fixture
def workers(_reaper: Reaper, tmp_path: Path) -> Iterator[Workers]:
    with Workers(_reaper, tmp_path) as running:
        yield running


def test_a_job_that_kills_its_workers_is_put_aside(server: Server, workers: Workers) -> None:
    """REL-10, REL-11: after four dead workers the fifth kills the job and runs the others."""
    client = server.client()
    with Client(server.url) as enqueuer:
        jid = enqueuer.push("Kill", [], retry=False)
        enqueuer.push("Note", [])
    for _ in range(4):
        killed = workers.start(APP, "--redis", server.url, "-c", "1")
        assert killed.wait(60) == -9, killed.log.read_text()
    last = workers.start(APP, "--redis", server.url, "-c", "1")
    wait_until(lambda: client.zcard("dead") == 1, 60, "the burial")
    wait_until(lambda: client.get("stat:processed") == b"1", 60, "the other job")
    [text] = client.zrange("dead", 0, -1)
    dead_limits = json.loads(text)
    assert (dead_limits["jid"], dead_limits["error_class"]) == (jid, "jobwire.PoisonPill")
    assert "retry_count" not in dead_limits
    assert not client.exists("queue:default", "stat:failed", "jobwire:returned")
    assert last.process.poll() is None
