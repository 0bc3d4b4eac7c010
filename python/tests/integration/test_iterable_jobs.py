"""Iterable jobs and metrics in a running worker, from the queue to the keys left in Redis."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.application.config import FetchMode
from jobwire.errors import Shutdown
from jobwire.iterables import over_sequence
from jobwire.protocol.iteration import Cursor, cancel
from jobwire.protocol.keys import Keys
from jobwire.protocol.metrics import minute_key, read_rollup
from jobwire.protocol.payload import Job
from tests.workers import running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])
KINDS = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
KEYS = Keys()
COUNT = 30


class Walk:
    """An iterable job that waits at an item until the test lets it continue.

    Attributes:
        items: Items that have begun.
        seen: Errors that middleware saw.
    """

    def __init__(self, *, is_async: bool = False, **options: Any) -> None:
        self.items: list[int] = []
        self.seen: list[BaseException] = []
        self.hold_at: int | None = None
        self.held = threading.Event()
        self.go = threading.Event()
        self.app = App(server_middleware=[self.middleware])
        define = self.app.iterable(name="Walk", **options)
        self.job: Any = define(self.awalk) if is_async else define(self.walk)

    def middleware(self, job: Job, call_next: Callable[[], Any]) -> Any:
        try:
            return call_next()
        except Exception as error:
            self.seen.append(error)
            raise

    def do(self, item: int) -> None:
        self.items.append(item)
        if item == self.hold_at:
            self.hold_at = None
            self.held.set()

    def walk(self, cursor: Cursor, count: int) -> Iterator[object]:
        for item, at in over_sequence(cursor, range(count)):
            yield at
            self.do(item)
            while self.held.is_set() and not self.go.wait(0.01):
                pass

    async def awalk(self, cursor: Cursor, count: int) -> AsyncIterator[object]:
        for item, at in over_sequence(cursor, range(count)):
            yield at
            self.do(item)
            while self.held.is_set() and not self.go.is_set():
                await asyncio.sleep(0.01)


def settled(server: Server) -> bool:
    """True if no job waits or is held."""
    client = server.client()
    return not client.keys("queue:*") and not client.keys("jobwire:private:*")


@FETCH
@KINDS
def test_a_stop_sends_it_to_the_head_of_its_queue(
    server: Server, fetch: FetchMode, is_async: bool
) -> None:
    """State first, then the same payload with a new `enqueued_at`.

    ITER-3, ITER-4, ITER-13, ITER-14, ITER-16, ITER-17, STAT-3.
    """
    walk = Walk(is_async=is_async)
    walk.app.connect(server.url)
    client = server.client()
    jid = walk.job.enqueue(COUNT)
    pushed = json.loads(client.lindex("queue:default", 0))
    walk.hold_at = 7
    with running(walk.app, server, fetch=fetch, concurrency=1) as launcher:
        assert walk.held.wait(60)
        launcher.quiet()
        client.lpush("queue:default", '{"class":"Other","jid":"other","args":[]}')
        walk.go.set()
        wait_until(lambda: client.llen("queue:default") == 2, 60, "its return")
    assert walk.items == list(range(8))
    assert walk.seen == []
    state = client.hgetall(f"it-{jid}")
    assert (state[b"ex"], state[b"c"]) == (b"1", b"8")
    head, tail = (json.loads(text) for text in client.lrange("queue:default", 0, -1))
    assert tail["jid"] == "other"
    assert head.pop("enqueued_at") > pushed.pop("enqueued_at")
    assert head == pushed
    assert not client.get("stat:failed")
    assert not client.keys("jobwire:private:*")

    client.rpop("queue:default")
    with running(walk.app, server, fetch=fetch):
        wait_until(lambda: settled(server) and not client.exists(f"it-{jid}"), 60, "its end")
    assert walk.items == list(range(COUNT))


@FETCH
@KINDS
def test_a_failure_is_retried_from_its_item(
    server: Server, fetch: FetchMode, is_async: bool
) -> None:
    """ITER-10, RETRY-9: an ordinary failure that keeps the state."""
    walk = Walk(is_async=is_async)
    do, broken = walk.do, [True]

    def fail_once(item: int) -> None:
        do(item)
        if item == 4 and broken:
            broken.clear()
            raise LookupError("boom")

    walk.do = fail_once  # type: ignore[method-assign]
    walk.app.connect(server.url)
    client = server.client()
    jid = walk.job.enqueue(COUNT)
    with running(walk.app, server, fetch=fetch):
        wait_until(lambda: client.zcard("retry"), 60, "the failure")
        assert client.hget(f"it-{jid}", "c") == b"4"
        assert [str(error) for error in walk.seen] == ["boom"]
        text = client.zrange("retry", 0, -1)[0]
        assert json.loads(text)["error_message"] == "boom"
        client.zrem("retry", text)
        client.lpush("queue:default", text)
        wait_until(lambda: settled(server) and not client.exists(f"it-{jid}"), 60, "its end")
    assert walk.items == [*range(5), *range(4, COUNT)]


def test_giving_way_to_others(server: Server) -> None:
    """ITER-4, ITER-11: a job that has run long enough lets the next job run first."""
    order: list[object] = []
    app = App()

    @app.iterable(name="Long", max_runtime=0.05)
    def long(cursor: Cursor) -> Iterator[object]:
        for item, at in over_sequence(cursor, range(6)):
            yield at
            order.append(item)
            time.sleep(0.06)

    @app.job(name="Short")
    def short() -> None:
        order.append("short")

    app.connect(server.url)
    long.enqueue()
    short.enqueue()
    with running(app, server, concurrency=1):
        wait_until(lambda: settled(server) and 5 in order, 60, "both")
    assert order == [0, "short", 1, 2, 3, 4, 5]


@KINDS
def test_cancelling(server: Server, is_async: bool) -> None:
    """ITER-7, ITER-18, ITER-19, STAT-1: cancelled before its start, the job counts as done."""
    walk = Walk(is_async=is_async)
    walk.app.connect(server.url)
    client = server.client()
    jid = walk.job.enqueue(COUNT)
    walk.app.client.redis.run(cancel(KEYS, jid, now=time.time()))
    with running(walk.app, server):
        wait_until(lambda: client.get("stat:processed") == b"1", 60, "its end")
        wait_until(lambda: not client.exists(f"it-{jid}"), 60, "the end of its state")
    assert walk.items == []
    assert not client.get("stat:failed")


@KINDS
def test_a_hard_stop(server: Server, is_async: bool) -> None:
    """SIG-5: an item that takes too long is interrupted; the job goes back unchanged."""
    walk = Walk(is_async=is_async)
    walk.app.connect(server.url)
    client = server.client()
    walk.job.enqueue(COUNT)
    text = client.lindex("queue:default", 0)
    walk.hold_at = 3
    with running(walk.app, server, timeout=0.2):
        assert walk.held.wait(60)
    assert client.lrange("queue:default", 0, -1) == [text]
    assert not any(isinstance(error, Shutdown) for error in walk.seen)
    walk.go.set()
    with running(walk.app, server):
        wait_until(lambda: settled(server) and not client.keys("it-*"), 60, "its end")
    assert set(walk.items) == set(range(COUNT))


def test_calling_it_here(server: Server) -> None:
    """A call in this process needs neither worker nor Redis."""
    walk = Walk()
    walk.job(5)
    assert walk.items == [0, 1, 2, 3, 4]
    assert server.client().keys("*") == []


@FETCH
def test_metrics(server: Server, fetch: FetchMode) -> None:
    """MET-10: each execution counts under the name of its class."""
    app = App()
    begun: list[str] = []  # basic fetch shows no job between fetch and start

    @app.job(name="Quick")
    async def quick() -> None:
        begun.append("Quick")

    @app.job(name="Broken", retry=False)
    def broken() -> None:
        begun.append("Broken")
        raise LookupError

    app.connect(server.url)
    client = server.client()
    for _ in range(5):
        quick.enqueue()
    broken.enqueue()
    app.client.push("Quick", [], fields={"wrapped": "Inner"})
    with running(app, server, fetch=fetch):
        wait_until(lambda: len(begun) == 7, 60, "all runs")  # all end before the worker does
    now = time.time()  # the worker flushed when it ended
    found: dict[str, tuple[int, int]] = {}
    for ago in range(3):
        rollup = read_rollup(client.hgetall(minute_key(KEYS, now - 60 * ago)))
        for name, each in rollup.items():
            count, failed = found.get(name, (0, 0))
            found[name] = (count + each.count, failed + each.failed)
    assert found == {"Quick": (5, 0), "Inner": (1, 0), "Broken": (1, 1)}
