"""Iterable jobs and metrics in a running worker, from the queue to the keys left in Redis."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.iterables import over_sequence
from jobwire.protocol.iteration import Cursor
from jobwire.protocol.payload import Job
from tests.workers import running

JID = "ab" * 12


class Steps:
    """An app with an iterable job, Count, that notes each item."""

    def __init__(self) -> None:
        self.app = App()
        self.seen: list[int] = []

        @self.app.iterable(name="Count")
        def count(cursor: Cursor, end: int) -> Iterator[object]:
            for number in range(cursor.value or 0, end):
                yield number
                self.seen.append(number)


def push(server: Server, **fields: Any) -> None:
    payload = {"class": "Count", "args": [5], "jid": JID, "queue": "default", "retry": True}
    server.client().lpush("queue:default", json.dumps({**payload, **fields}))


def test_middleware_and_wrappers_surround_a_run(server: Server) -> None:
    """EXEC-6: and an interruption passes through them unseen."""
    steps = Steps()
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


def settled(server: Server) -> bool:
    """True if no job waits or is held."""
    client = server.client()
    return not client.keys("queue:*") and not client.keys("jobwire:private:*")


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
