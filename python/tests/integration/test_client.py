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
from tests.integration.clients import KINDS, Connect, connecting, everything, listening


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


def test_a_push_is_one_transaction(server: Server, connect: Connect) -> None:
    """PUSH-1, PUSH-2, KEY-1 and KEY-2: SADD and LPUSH between MULTI and EXEC, no other command."""
    client = connect(server.url, generation=8)
    with listening(server) as heard:
        client.push("HardJob", [1], queue="a:b|c")
        words = [line.words for line in heard()]
    [text] = server.client().lrange("queue:a:b|c", 0, -1)
    assert words == [
        (b"MULTI",),
        (b"SADD", b"queues", b"a:b|c"),
        (b"LPUSH", b"queue:a:b|c", text),
        (b"EXEC",),
    ]


def test_a_scheduled_push_is_one_command(server: Server, connect: Connect) -> None:
    """SCHED-1: one ZADD and no other command."""
    client = connect(server.url, generation=8)
    with listening(server) as heard:
        client.push("HardJob", [1], at=4_000_000_000.5)
        lines = heard()
    [text] = server.client().zrange("schedule", 0, -1)
    assert [line.words for line in lines] == [(b"ZADD", b"schedule", b"4000000000.5", text)]


def test_the_queue_is_first_in_first_out(server: Server, connect: Connect) -> None:
    """PUSH-1: jobs are pushed at the head, so that the oldest is at the tail."""
    client = connect(server.url, generation=8)
    client.push("A", ["first"])
    client.push_bulk("A", [["second"], ["third"]])
    queue = server.client().lrange("queue:default", 0, -1)
    assert [json.loads(text)["args"] for text in reversed(queue)] == [
        ["first"],
        ["second"],
        ["third"],
    ]


def test_an_id_of_the_caller_is_kept_if_it_is_one(server: Server, connect: Connect) -> None:
    """PUSH-19, PUSH-20, PUSH-21: a text is written unchanged; None and "" count as absent."""
    client = connect(server.url, generation=8)
    for number, jid in enumerate(("abcdef012345", "4A6F-uuid", "", None)):
        client.push("A", [number], jid=jid, fields={"created_at": None})
    stored = [json.loads(text) for text in server.client().lrange("queue:default", 0, -1)][::-1]
    assert [job["jid"] for job in stored[:2]] == ["abcdef012345", "4A6F-uuid"]
    assert all(re.fullmatch("[0-9a-f]{24}", job["jid"]) for job in stored[2:])
    assert all(type(job["created_at"]) is int for job in stored)


def test_a_push_writes_no_field_of_its_own(server: Server, connect: Connect) -> None:
    """KEY-0, PAY-0, KEY-10, PAY-31: the types of the tables, and no key or field beyond them."""
    client = connect(server.url, generation=8)
    client.push("A", [1])
    client.push("A", [1], at=4e9)
    plain = server.client()
    types = {key: plain.type(key) for key in plain.keys("*")}
    assert types == {b"queues": b"set", b"queue:default": b"list", b"schedule": b"zset"}
    assert {plain.ttl(key) for key in types} == {-1}
    job = json.loads(plain.lindex("queue:default", 0))
    assert {name: type(value) for name, value in job.items()} == {
        "retry": bool,
        "queue": str,
        "args": list,
        "class": str,
        "jid": str,
        "created_at": int,
        "enqueued_at": int,
    }


def test_times_are_those_of_the_push(server: Server, connect: Connect) -> None:
    """PUSH-3, PUSH-11: a first push sets both times to now; a `created_at` of the caller stays."""
    client = connect(server.url, generation=8)
    before = int(time.time() * 1000)
    client.push("A", fields={"created_at": 5})
    client.push("A")
    after = int(time.time() * 1000)
    new, old = map(json.loads, server.client().lrange("queue:default", 0, -1))
    assert before <= new["created_at"] == new["enqueued_at"] <= after
    assert old["created_at"] == 5
    assert before <= old["enqueued_at"] <= after


def test_every_job_has_an_id_of_its_own(server: Server, connect: Connect) -> None:
    """PAY-9, PAY-28, BULK-2, BULK-16: ids are 24 hex digits, unique, and returned."""
    client = connect(server.url, generation=8)
    told = [client.push("A"), *client.push_bulk("A", [[]] * 500), client.push_in(60, "A")]
    stored = server.client().lrange("queue:default", 0, -1) + server.client().zrange(
        "schedule", 0, -1
    )
    jids = [json.loads(text)["jid"] for text in stored]
    assert sorted(jids) == sorted(jid for jid in told if jid)
    assert len(set(jids)) == 502
    assert all(re.fullmatch("[0-9a-f]{24}", jid) for jid in jids)


def test_retry_and_queue_are_always_written(server: Server, connect: Connect) -> None:
    """PUSH-6, PUSH-13: the defaults, the values of the caller, and null for None."""
    client = connect(server.url, generation=8)
    client.push("A")
    client.push("A", retry=5, queue="low")
    client.push("A", retry=None, queue="low")
    defaults = json.loads(server.client().lindex("queue:default", 0))
    null, five = map(json.loads, server.client().lrange("queue:low", 0, -1))
    assert (defaults["retry"], defaults["queue"]) == (True, "default")
    assert (five["retry"], five["queue"]) == (5, "low")
    assert null["retry"] is None


SHAPES: list[Any] = [
    *(0, -1, 2**53 + 1, 10**40, 1.0, -0.0, 0.1, 1e300, 5e-324, 1e16, True, False, None),
    *("", "é😀", '\x00\x1f\x7f\u2028/\\"', [], {}, [[]], {"": {"a": [1, None]}}),
]


def test_arguments_arrive_exactly(server: Server, connect: Connect) -> None:
    """PAY-5, PAY-6: every JSON shape arrives, in the form of PAY-2, PAY-20 and PAY-21."""
    connect(server.url, generation=8).push("A", SHAPES)
    text = server.client().lindex("queue:default", 0)
    assert repr(json.loads(text)["args"]) == repr(SHAPES)
    assert "é😀".encode() in text
    assert b'\\u0000\\u001f\x7f\xe2\x80\xa8/\\\\\\"' in text
    assert b": " not in text
    assert b", " not in text


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


@pytest.mark.parametrize(
    "when", [0, -60, 1_000_000_000, timedelta(0), datetime(2020, 1, 1, tzinfo=UTC)]
)
def test_a_convenience_in_the_past_is_pushed_at_once(
    server: Server, connect: Connect, when: Any
) -> None:
    """SCHED-3: a time in the past does not go through the schedule."""
    connect(server.url, generation=8).push_in(when, "A")
    [text] = server.client().lrange("queue:default", 0, -1)
    assert b'"at"' not in text
    assert server.client().exists("schedule") == 0


@pytest.mark.parametrize("at", [0, 5, 1_000_000_000.5])
def test_a_raw_time_in_the_past_is_scheduled(server: Server, connect: Connect, at: float) -> None:
    """SCHED-15: the low-level form keeps the time as given; 5 is a second of 1970."""
    connect(server.url, generation=8).push("A", at=at)
    [(text, score)] = server.client().zrange("schedule", 0, -1, withscores=True)
    assert score == at
    assert b'"at"' not in text
    assert b"enqueued_at" not in text
