"""The bytes that both clients leave in Redis: one set of cases for both."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from harness.servers import Server
from jobwire import InvalidJob
from jobwire.connection import resources
from tests.integration.clients import KINDS, Connect, connecting, everything


def fixture(version: str, name: str) -> dict[str, Any]:
    path = resources.path("fixtures") / f"sidekiq/{version}/payloads.json"
    [entry] = [entry for entry in json.loads(path.read_text("utf-8")) if entry["name"] == name]
    return dict(entry)


def timeless(text: bytes) -> bytes:
    """Return a payload with its job id dropped and its times replaced by their form."""
    text = re.sub(rb"(?<=_at\":)\d{10}\.\d+", b"<seconds>", text)
    return re.sub(rb"(?<=_at\":)\d{13}(?!\d)", b"<milliseconds>", text)


PLAIN = ("push-plain/queue:default/0", [("8.1.7", 8), ("7.3.2", 7), ("6.4.1", 7)])


@pytest.mark.parametrize(("version", "generation"), PLAIN[1])
def test_a_push_leaves_the_bytes_that_ruby_leaves(
    server: Server, connect: Connect, version: str, generation: int
) -> None:
    """PAY-2, PAY-11, PAY-12, GEN-1, GEN-2 and PUSH-1: text, order and form of times."""
    theirs = fixture(version, PLAIN[0])
    expect = theirs["expect"]
    client = connect(server.url, generation=generation)
    client.push(expect["class"], json.loads(expect["args_json"]), jid=expect["jid"])
    [ours] = server.client().lrange("queue:default", 0, -1)
    assert timeless(ours) == timeless(theirs["payload"].encode())
    assert everything(server) == {b"queues": {b"default"}, b"queue:default": [ours]}


@pytest.mark.parametrize(("version", "generation"), PLAIN[1])
def test_a_scheduled_push_leaves_the_bytes_that_ruby_leaves(
    server: Server, connect: Connect, version: str, generation: int
) -> None:
    """SCHED-12, SCHED-13, SCHED-14, KEY-8, GEN-4: a push, but without enqueued_at and `queues`.

    Score in seconds.
    """
    theirs = fixture(version, "perform-in-at/schedule/0")
    client = connect(server.url, generation=generation)
    before = time.time()
    jid = client.push_in(60, "EchoJob", ["in 60"], jid=theirs["expect"]["jid"])
    assert jid == theirs["expect"]["jid"]
    [(ours, score)] = server.client().zrange("schedule", 0, -1, withscores=True)
    assert timeless(ours) == timeless(theirs["payload"].encode())
    assert before + 60 <= score <= time.time() + 60
    assert everything(server) == {b"schedule": [(ours, score)]}


def deep(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


INVALID: dict[str, Callable[[Any], Any]] = {
    "no class": lambda c: c.push(""),
    "class": lambda c: c.push(5),
    "args": lambda c: c.push("A", "abc"),
    "args of bulk": lambda c: c.push_bulk("A", [[1], "abc"]),
    "queue": lambda c: c.push("A", queue=""),
    "null queue": lambda c: c.push("A", queue=None),
    "retry": lambda c: c.push("A", retry=-1),
    "retry_for": lambda c: c.push("A", retry_for=1_000_000_001),
    "backtrace": lambda c: c.push("A", backtrace=-1),
    "tags": lambda c: c.push("A", tags="billing"),
    "tags as field": lambda c: c.push("A", fields={"tags": "billing"}),
    "at as text": lambda c: c.push("A", at="60"),
    "at as boolean": lambda c: c.push("A", at=True),
    "at in milliseconds": lambda c: c.push("A", at=1795192067250),
    "push_in None": lambda c: c.push_in(None, "A"),
    "at is naive": lambda c: c.push("A", at=datetime(2099, 1, 1)),
    "date": lambda c: c.push("A", [datetime(2026, 1, 1, tzinfo=UTC)]),
    "tuple": lambda c: c.push("A", [(1, 2)]),
    "number as key": lambda c: c.push("A", [{1: 2}]),
    "NaN": lambda c: c.push("A", [float("nan")]),
    "infinity in a field": lambda c: c.push("A", fields={"x": [float("inf")]}),
    "too deep": lambda c: c.push("A", [deep(99)]),
    "surrogate": lambda c: c.push("A", ["\ud800"]),
    "jid for several": lambda c: c.push_bulk("A", [[1], [2]], jid="abc"),
    "jid as field for several": lambda c: c.push_bulk("A", [[1], [2]], fields={"jid": "abc"}),
    "too few times": lambda c: c.push_bulk("A", [[1], [2]], at=[5.0]),
    "spread": lambda c: c.push_bulk("A", [[1]], spread_interval=0),
    "spread and at": lambda c: c.push_bulk("A", [[1]], spread_interval=5, at=5.0),
    "last of many": lambda c: c.push_bulk("A", [[1]] * 1_500 + [[{2}]]),
    "queue among the fields": lambda c: c.push("A", fields={"queue": "low"}),
    "jid that is not a text": lambda c: c.push("A", jid=5),
    "created_at that is not a time": lambda c: c.push("A", fields={"created_at": "today"}),
    "no text for a field": lambda c: c.push("A", fields={5: 5}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_invalid_job_is_refused_and_nothing_is_written(server: Server, kind: Any) -> None:
    """PUSH-4, PUSH-5, PAY-3, PAY-4, PAY-12, PAY-22, PAY-30, SCHED-4 of single pushes.

    BULK-10, BULK-11, BULK-12, BULK-13 of bulk pushes.
    """
    accepted = []
    with connecting(kind) as make:
        client = make(server.url, generation=8)
        for name, attempt in INVALID.items():
            try:
                attempt(client)
            except InvalidJob:
                continue
            accepted.append(name)
        assert accepted == []
        assert server.client().dbsize() == 0
        client.push("A", [deep(98)])  # the deepest that is valid
    assert server.client().llen("queue:default") == 1


RELATIVE = [
    (60, 60),
    (0.5, 0.5),
    (timedelta(hours=1), 3_600),
    (999_999_999, 999_999_999),
]


@pytest.mark.parametrize(("when", "seconds"), RELATIVE)
def test_delays_count_from_now(server: Server, connect: Connect, when: Any, seconds: float) -> None:
    """SCHED-2: a number below 1,000,000,000 and a timedelta."""
    before = time.time()
    connect(server.url, generation=8).push_in(when, "A")
    [(_, score)] = server.client().zrange("schedule", 0, -1, withscores=True)
    assert before + seconds <= score <= time.time() + seconds


@pytest.mark.parametrize(
    "when", [4_000_000_000, 4_000_000_000.0, datetime(2096, 10, 2, 7, 6, 40, tzinfo=UTC)]
)
def test_times_are_absolute(server: Server, connect: Connect, when: Any) -> None:
    """SCHED-2: any other number and an aware datetime, also as `at`."""
    client = connect(server.url, generation=8)
    client.push_in(when, "A")
    client.push("A", at=when)
    scores = [score for _, score in server.client().zrange("schedule", 0, -1, withscores=True)]
    assert scores == [4e9, 4e9]
