"""Middleware of both clients."""

from __future__ import annotations

import json
from collections.abc import Callable

from harness.servers import Server
from jobwire.protocol.normalize import JobFields
from tests.integration.clients import Connect, everything


def route(item: JobFields, call_next: Callable[[], JobFields | None]) -> JobFields | None:
    """Send numbers to queues of their own, keep 3 for later and stop 4."""
    [number] = item["args"]
    item["queue"] = f"q{number % 2}"
    item["jw_number"] = number
    if number == 3:
        item["at"] = 4e9
    return None if number == 4 else call_next()


def test_middleware_decides_for_each_job(server: Server, connect: Connect) -> None:
    """PUSH-7, BULK-5, BULK-15, BULK-19: a job goes where middleware says; None stops it."""
    client = connect(server.url, generation=8, middleware=[route])
    jids = client.push_bulk("A", [[n] for n in range(6)])
    assert [jid is None for jid in jids] == [False, False, False, False, True, False]
    found = everything(server)
    assert set(found) == {b"queues", b"queue:q0", b"queue:q1", b"schedule"}
    assert found[b"queues"] == {b"q0", b"q1"}
    numbers = {
        key: [json.loads(text)["jw_number"] for text in found[key]]
        for key in (b"queue:q0", b"queue:q1")
    }
    assert numbers == {b"queue:q0": [2, 0], b"queue:q1": [5, 1]}
    [(later, score)] = found[b"schedule"]
    assert (json.loads(later)["args"], score) == ([3], 4e9)


def test_middleware_can_stop_a_single_job(server: Server, connect: Connect) -> None:
    """PUSH-15, PUSH-16: the call returns None, and nothing is written."""
    client = connect(server.url, generation=8, middleware=[route])
    assert client.push("A", [4]) is None
    assert server.client().dbsize() == 0
    assert client.push("A", [5])


def test_middleware_is_nested(server: Server, connect: Connect) -> None:
    """PUSH-7: the first middleware is the outermost, and the job that it returns is pushed."""
    calls = []

    def outer(item: JobFields, call_next: Callable[[], JobFields | None]) -> JobFields | None:
        calls.append("outer in")
        after = call_next()
        calls.append("outer out")
        return None if after is None else after | {"tags": ["outer"]}

    def inner(item: JobFields, call_next: Callable[[], JobFields | None]) -> JobFields | None:
        calls.append("inner")
        return call_next()

    connect(server.url, generation=8, middleware=[outer, inner]).push("A")
    assert calls == ["outer in", "inner", "outer out"]
    assert json.loads(server.client().lindex("queue:default", 0))["tags"] == ["outer"]
