"""Iterable jobs in a running worker."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.application.config import FetchMode
from jobwire.protocol.iteration import Cursor
from jobwire.protocol.payload import Job
from tests.workers import running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])
KIND = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
JID = "ab" * 12


class Steps:
    """An app with an iterable job, Count, that notes each item; item `stop_at` waits for `go`."""

    def __init__(self, is_async: bool, stop_at: int | None = None) -> None:
        self.app = App()
        self.seen: list[int] = []
        self.waiting = threading.Event()
        self.go = threading.Event()

        def step(number: int) -> None:
            if number == stop_at:
                self.waiting.set()
                self.go.wait(60)
            self.seen.append(number)

        if is_async:

            @self.app.iterable(name="Count")
            async def acount(cursor: Cursor, end: int) -> AsyncIterator[object]:
                for number in range(cursor.value or 0, end):
                    yield number
                    step(number)
        else:

            @self.app.iterable(name="Count")
            def count(cursor: Cursor, end: int) -> Iterator[object]:
                for number in range(cursor.value or 0, end):
                    yield number
                    step(number)


def push(server: Server, **fields: Any) -> None:
    payload = {"class": "Count", "args": [5], "jid": JID, "queue": "default", "retry": True}
    server.client().lpush("queue:default", json.dumps({**payload, **fields}))


@FETCH
@KIND
def test_an_iteration_ends_without_a_trace(
    server: Server, fetch: FetchMode, is_async: bool
) -> None:
    """ITER-6: the state is deleted with the outcome."""
    steps = Steps(is_async)
    push(server)
    with running(steps.app, server, fetch=fetch):
        wait_until(lambda: len(steps.seen) == 5)
    assert steps.seen == [0, 1, 2, 3, 4]
    client = server.client()
    assert client.get("stat:processed") == b"1"
    assert client.keys("it-*") == []
    assert {key for key in client.keys("jobwire:*") if b":idle:" not in key} == set()


@FETCH
@KIND
def test_a_stop_interrupts_at_an_item_and_another_worker_goes_on(
    server: Server, fetch: FetchMode, is_async: bool
) -> None:
    """ITER-3, ITER-4, ITER-5: no item is left out, and the interruption is not counted."""
    first = Steps(is_async, stop_at=2)
    client = server.client()
    push(server, enqueued_at=1)
    with running(first.app, server, fetch=fetch) as worker:
        assert first.waiting.wait(60)
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        wait_until(worker._quiet.is_set)
        first.go.set()
        stopping.join(60)
        (text,) = client.lrange("queue:default", 0, -1)
        assert json.loads(text)["enqueued_at"] > 10**12
        assert "retry_count" not in json.loads(text)
        assert client.get("stat:processed") is None
        assert client.hget(f"it-{JID}", "c") == b"3"
    second = Steps(is_async)
    with running(second.app, server, fetch=fetch):
        wait_until(lambda: len(second.seen) == 2)
    assert first.seen + second.seen == [0, 1, 2, 3, 4]
    assert client.get("stat:processed") == b"1"
    assert not client.exists(f"it-{JID}")


def test_it_gives_way_after_its_time(server: Server) -> None:
    """ITER-11: any number of times, interleaved with other jobs."""
    steps = Steps(is_async=False)
    push(server)
    with running(steps.app, server, max_iteration_runtime=1e-9):
        wait_until(lambda: server.client().get("stat:processed"))
    assert steps.seen == [0, 1, 2, 3, 4]
    assert server.client().get("stat:processed") == b"1"


@KIND
def test_an_item_that_fails_is_retried_from_there(server: Server, is_async: bool) -> None:
    """ITER-10, RETRY-2."""
    app = App()
    fails: list[int] = [3]
    seen: list[int] = []

    def step(number: int) -> None:
        if number in fails:
            fails.remove(number)
            raise ValueError
        seen.append(number)

    if is_async:

        @app.iterable(name="Count")
        async def acount(cursor: Cursor, end: int) -> AsyncIterator[object]:
            for number in range(cursor.value or 0, end):
                yield number
                step(number)
    else:

        @app.iterable(name="Count")
        def count(cursor: Cursor, end: int) -> Iterator[object]:
            for number in range(cursor.value or 0, end):
                yield number
                step(number)

    client = server.client()
    push(server)
    with running(app, server):
        (text,) = wait_until(lambda: client.zrange("retry", 0, -1))
        client.zrem("retry", text)
        client.lpush("queue:default", text)
        wait_until(lambda: len(seen) == 5)
    assert seen == [0, 1, 2, 3, 4]


def test_middleware_and_wrappers_surround_a_run(server: Server) -> None:
    """EXEC-6: and an interruption passes through them unseen."""
    steps = Steps(is_async=False)
    around: list[str] = []

    def middleware(job: Job, call_next: Any) -> Any:
        around.append("in")
        try:
            return call_next()
        except Exception:  # noqa: BLE001 - to show that it is none
            around.append("error")
        finally:
            around.append("out")

    steps.app.server_middleware.add(middleware)
    push(server)
    with running(steps.app, server, max_iteration_runtime=1e-9):
        wait_until(lambda: server.client().get("stat:processed"))
    assert steps.seen == [0, 1, 2, 3, 4]
    assert around == ["in", "out"] * (len(around) // 2)
    assert len(around) >= 4
