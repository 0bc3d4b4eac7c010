"""Every way of fetching skips paused queues, and notices when they continue. [REL-9]"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App, Client
from jobwire.worker.base.timings import DEFAULT_TIMINGS
from tests.integration.clients import Heard, listening
from tests.workers import brisk, running


def recorder() -> tuple[App, list[str]]:
    app = App()
    got: list[str] = []

    @app.job(name="Note")
    def note(word: str) -> None:
        got.append(word)

    return app, got


def push(server: Server, queue: str, word: str) -> None:
    with Client(server.url) as client:
        client.push("Note", [word], queue=queue)


@pytest.mark.parametrize("fetch", ["reliable", "basic"])
def test_a_paused_queue_waits_and_goes_on(server: Server, fetch: str) -> None:
    """REL-9: other queues are served meanwhile; nothing is lost or out of order."""
    client = server.client()
    app, got = recorder()
    timings = brisk(fetch_safety_interval=600.0)  # a notice wakes the worker, not the next poll
    client.sadd("jobwire:paused", "a", "of another worker")
    for word in ("a1", "a2"):
        push(server, "a", word)
    settings: Any = {"concurrency": 1, "fetch": fetch, "timings": timings}
    with running(app, server, queues={"a": 0, "b": 0}, **settings):
        for word in ("b1", "b2"):
            push(server, "b", word)
            wait_until(partial(lambda word: got[-1:] == [word], word), 60)
        assert client.llen("queue:a") == 2
        client.srem("jobwire:paused", "a")
        wait_until(lambda: got == ["b1", "b2", "a1", "a2"], 60)
        client.sadd("jobwire:paused", "b")
        if fetch == "basic":  # one question serves many fetches
            with listening(server) as heard:
                wait_until(lambda: any(map(asks_for_pauses, heard())), what="the worker to ask")
        push(server, "b", "b3")
        push(server, "a", "a3")
        wait_until(lambda: got[4:] == ["a3"], 60)
        assert client.llen("queue:b") == 1
    assert client.llen("queue:b") == 1


@pytest.mark.process
@pytest.mark.parametrize("fetch", ["reliable", "basic"])
def test_a_worker_of_paused_queues_only_is_silent(server: Server, fetch: str) -> None:
    """REL-9: a worker does not poll because of jobs that wait in a paused queue."""
    client = server.client()
    app, got = recorder()
    client.sadd("jobwire:paused", "a")
    push(server, "a", "a1")
    with running(app, server, queues={"a": 0}, concurrency=3, fetch=fetch):
        wait_until(lambda: silent(server), 60, "the worker to wait")
        assert got == []
        client.srem("jobwire:paused", "a")
        wait_until(lambda: got == ["a1"], 60)


def asks_for_pauses(line: Heard) -> bool:
    return line.name == "SMEMBERS" and b"paused" in line.words[1]


def silent(server: Server) -> bool:
    """True if the server gets almost no commands for a moment."""
    with listening(server) as heard:
        time.sleep(0.5)
        return len([line for line in heard() if not line.by_script]) <= 3


@pytest.mark.process
def test_pausing_needs_no_more_than_two_commands_in_two_seconds(server: Server) -> None:
    """REL-9: a basic worker asks for all its threads at once."""
    app, _ = recorder()
    timings = DEFAULT_TIMINGS
    with (
        running(app, server, concurrency=10, fetch="basic", timings=timings),
        listening(server) as heard,
    ):
        began = time.monotonic()
        time.sleep(3.0)  # as above
        asked = [*filter(asks_for_pauses, heard())]
        assert len(asked) <= (time.monotonic() - began) / 2 + 10
