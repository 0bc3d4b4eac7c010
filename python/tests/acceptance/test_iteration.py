"""An iterable job whose worker is killed or stopped: another process continues it."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Reaper, Server, wait_until
from jobwire import Client
from tests.workers import Workers

JOBS = """
import time
import redis
from jobwire import App
from jobwire.iterables import over_sequence
from jobwire.protocol import iteration

iteration.SAVE_INTERVAL_S = 0.2  # seconds, to save some
app = App()

@app.iterable(name="Walk")
def walk(cursor, count):
    with redis.Redis.from_url(app.url) as client:
        for item, at in over_sequence(cursor, range(count)):
            yield at
            client.rpush("app:items", item)
            if not client.exists("app:hurry"):
                time.sleep(0.01)
"""
COUNT = 2000  # 20 s without app:hurry


@pytest.fixture
def workers(_reaper: Reaper, tmp_path: Path) -> Iterator[Workers]:
    (tmp_path / "walking.py").write_text(JOBS)
    with Workers(_reaper, tmp_path) as running:
        yield running


def items(server: Server) -> list[int]:
    return [int(item) for item in server.client().lrange("app:items", 0, -1)]


def further(server: Server) -> None:
    """Wait until some more items have begun."""
    before = len(items(server))
    wait_until(lambda: len(items(server)) > before + 5, 60, "some items")


@pytest.mark.parametrize("fetch", ["reliable", pytest.param("basic", marks=pytest.mark.full)])
def test_a_deployment(server: Server, workers: Workers, fetch: str) -> None:
    """ITER-3, ITER-4, ITER-5: TERM ends the process soon; no item is left out or repeated."""
    client = server.client()
    with Client(server.url) as enqueuer:
        jid = enqueuer.push("Walk", [COUNT])
    command = ("walking:app", "--redis", server.url, "--fetch", fetch)
    for _ in range(2):
        worker = workers.start(*command)
        further(server)
        worker.send(signal.SIGTERM)
        assert worker.wait(60) == 0
        assert client.llen("queue:default") == 1
        assert client.hget(f"it-{jid}", "c") == str(len(items(server))).encode()
    client.set("app:hurry", 1)
    workers.start(*command)
    wait_until(lambda: items(server)[-1] == COUNT - 1, 60, "the last item")
    wait_until(lambda: not client.exists(f"it-{jid}"), 60, "the end of its state")
    assert items(server) == list(range(COUNT))


def test_a_crash(server: Server, workers: Workers) -> None:
    """ITER-3, ITER-5, REL-4: after kill -9, from the last saved cursor."""
    client = server.client()
    with Client(server.url) as enqueuer:
        jid = enqueuer.push("Walk", [COUNT])
    worker = workers.start("walking:app", "--redis", server.url)
    wait_until(lambda: client.exists(f"it-{jid}"), 60, "a save")
    worker.kill()
    begun = items(server)
    saved = int(client.hget(f"it-{jid}", "c"))
    assert begun == list(range(len(begun)))
    assert 0 < saved <= len(begun)
    client.set("app:hurry", 1)
    workers.start("walking:app", "--redis", server.url)
    wait_until(lambda: items(server)[-1] == COUNT - 1, 60, "the last item")
    wait_until(lambda: not client.exists(f"it-{jid}"), 60, "the end of its state")
    assert items(server)[len(begun) :] == list(range(saved, COUNT))
