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
