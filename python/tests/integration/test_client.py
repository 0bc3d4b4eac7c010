"""The bytes that both clients leave in Redis: one set of cases for both."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Server
from jobwire import App, AsyncClient, Client, ConfigError, InvalidJob
from jobwire.connection import data
from jobwire.protocol.keys import Keys
from jobwire.protocol.normalize import JobFields
from jobwire.protocol.wire import Op, command
from tests.conftest import ServerFactory
from tests.integration.clients import KINDS, Connect, connecting, everything, listening


def fixture(version: str, name: str) -> dict[str, Any]:
    path = data.path("fixtures") / f"sidekiq/{version}/payloads.json"
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


def test_bulk_runs_in_the_order_of_its_arguments(server: Server, connect: Connect) -> None:
    """BULK-8, BULK-16: the first one is at the tail; the ids are in the same order."""
    jids = connect(server.url, generation=8).push_bulk("A", [[number] for number in range(2_500)])
    stored = [json.loads(text) for text in server.client().lrange("queue:default", 0, -1)][::-1]
    assert [job["args"] for job in stored] == [[number] for number in range(2_500)]
    assert [job["jid"] for job in stored] == jids


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


def test_bulk_errors_name_the_job(server: Server, connect: Connect) -> None:
    """PUSH-12: the error holds the number of the job, the path and the value."""
    with pytest.raises(
        InvalidJob, match=r"^A: job 1: args\[0\]\['when'\]: .* is set, for which JSON"
    ):
        connect(server.url, generation=8).push_bulk("A", [[1], [{"when": {5}}]])


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


def test_bulk_goes_out_in_slices(server: Server, connect: Connect) -> None:
    """BULK-1 and PUSH-2: at most 1,000 jobs in a transaction, in the order given."""
    client = connect(server.url, generation=8)
    with listening(server) as heard:
        jids = client.push_bulk("A", [[n] for n in range(2_500)])
        lines = heard()
    assert [line.name for line in lines] == ["MULTI", "SADD", "LPUSH", "EXEC"] * 3
    assert [len(line.words) - 2 for line in lines if line.name == "LPUSH"] == [1_000, 1_000, 500]
    stored = [json.loads(text) for text in reversed(server.client().lrange("queue:default", 0, -1))]
    assert [job["args"] for job in stored] == [[n] for n in range(2_500)]
    assert [job["jid"] for job in stored] == jids


def test_bulk_of_large_jobs_goes_out_in_slices_of_bytes(server: Server, connect: Connect) -> None:
    """BULK-1: at most 1 MiB in a transaction, but at least one job."""
    client = connect(server.url, generation=8)
    with listening(server) as heard:
        client.push_bulk("A", [["x" * size] for size in (400_000,) * 5 + (2_000_000, 5)])
        lines = heard()
    assert [len(line.words) - 2 for line in lines if line.name == "LPUSH"] == [2, 2, 1, 1, 1]


def test_scheduled_bulk_goes_out_in_smaller_slices(server: Server, connect: Connect) -> None:
    """BULK-7 and BULK-3: at most 100 jobs in a transaction; one time for all."""
    client = connect(server.url, generation=8)
    with listening(server) as heard:
        client.push_bulk("A", [[n] for n in range(250)], at=4e9)
        lines = heard()
    assert [(line.name, len(line.words) // 2 - 1) for line in lines] == [
        ("ZADD", 100),
        ("ZADD", 100),
        ("ZADD", 50),
    ]
    scored = server.client().zrange("schedule", 0, -1, withscores=True)
    assert {score for _, score in scored} == {4e9}
    assert len(scored) == 250


def test_bulk_with_a_time_for_each(server: Server, connect: Connect) -> None:
    """BULK-3: one time for each job, in the order of the jobs."""
    at = [4_000_000_000 + n for n in range(5)]
    connect(server.url, generation=8).push_bulk("A", [[n] for n in range(5)], at=at)
    scored = server.client().zrange("schedule", 0, -1, withscores=True)
    assert {json.loads(text)["args"][0]: score for text, score in scored} == dict(enumerate(at))


@pytest.mark.parametrize(("interval", "width"), [(1, 5), (1_000, 1_000)])
def test_bulk_that_is_spread(
    server: Server, connect: Connect, interval: float, width: float
) -> None:
    """BULK-4, BULK-14: now + u * interval, at least 5 s, each job with its own u."""
    before = time.time()
    connect(server.url, generation=8).push_bulk(
        "A", [[n] for n in range(200)], spread_interval=interval
    )
    after = time.time()
    scores = [score for _, score in server.client().zrange("schedule", 0, -1, withscores=True)]
    assert before <= min(scores) <= before + width / 4  # fails with probability 0.75 ** 200
    assert after + width * 0.75 <= max(scores) < after + width
    assert len(set(scores)) > 190


def test_an_empty_bulk_says_nothing(server: Server, connect: Connect) -> None:
    """BULK-9: no job, no command."""
    client = connect(server.url, generation=8)
    with listening(server) as heard:
        assert client.push_bulk("A", []) == []
        assert heard() == []


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


def register(server: Server, namespace: str, *versions: str | None) -> None:
    """Register processes as these versions of Sidekiq do; None stands for a missing version."""
    keys, client = Keys(namespace), server.client()
    for number, version in enumerate(versions):
        identity = f"host:{number}:0123456789ab"
        info = {"hostname": "host"} | ({} if version is None else {"version": version})
        client.sadd(keys.processes, identity)
        client.hset(keys.process(identity), "info", json.dumps(info))


@pytest.mark.parametrize(
    ("versions", "form"),
    [
        ((), int),
        (("8.1.7",), int),
        (("7.3.2",), float),
        (("8.1.7", "6.4.1"), float),
        ((None,), float),
        (("jobwire 0.1.0",), int),
        (("jobwire 0.1.0", "7.0.2"), float),
    ],
)
def test_auto_asks_the_registered_processes(
    server: Server, connect: Connect, versions: tuple[str | None, ...], form: type
) -> None:
    """GEN-5, GEN-10: the oldest Sidekiq decides; without any Sidekiq the generation is 8."""
    register(server, "", *versions)
    connect(server.url).push("A")
    job = json.loads(server.client().lindex("queue:default", 0))
    assert (type(job["created_at"]), type(job["enqueued_at"])) == (form, form)


def test_damaged_processes_have_no_say(server: Server, connect: Connect) -> None:
    """GEN-10: hashes that are expired, of another type or damaged do not stop a push."""
    client = server.client()
    client.sadd("processes", "expired", "wrong-type", "not-json", "no-object", b"\xff\xfe", "empty")
    client.set("wrong-type", "x")
    client.hset("not-json", "info", b"{\xff")
    client.hset("no-object", "info", "[7]")
    client.hset("empty", "beat", "5")
    assert connect(server.url).push("A")
    assert type(json.loads(client.lindex("queue:default", 0))["created_at"]) is int


def test_auto_asks_once_in_a_while(server: Server, connect: Connect) -> None:
    """GEN-7: the client does not ask at every push, because that costs two round trips."""
    register(server, "", "7.3.2")
    client = connect(server.url)
    with listening(server) as heard:
        for _ in range(5):
            client.push("A")
        names = [line.name for line in heard()]
    assert names.count("SMEMBERS") == 1
    assert names.count("LPUSH") == 5


def test_a_set_generation_asks_nobody(server: Server, connect: Connect) -> None:
    client = connect(server.url, generation=7)
    with listening(server) as heard:
        client.push("A")
        assert [line.name for line in heard()] == ["MULTI", "SADD", "LPUSH", "EXEC"]


@pytest.mark.parametrize("namespace", ["app:", "{shard-03}:"])
def test_a_namespace_is_kept_to(server: Server, connect: Connect, namespace: str) -> None:
    """KEY-4: every key of every command, and every key that exists. KEY-2, KEY-7: bare names."""
    register(server, namespace, "7.3.2")
    register(server, "", "8.1.7")  # of another namespace
    before = set(server.client().keys())
    client = connect(server.url, namespace=namespace)
    with listening(server) as heard:
        client.push("A", queue="low")
        client.push_in(60, "A")
        client.push_bulk("A", [[1], [2]])
        lines = heard()
    touched = {line.words[1] for line in lines if line.name not in ("MULTI", "EXEC")}
    assert len(touched) == 6
    assert {key for key in touched if not key.startswith(namespace.encode())} == set()
    new = set(server.client().keys()) - before
    assert new == {
        f"{namespace}{key}".encode() for key in ("queues", "queue:low", "queue:default", "schedule")
    }
    job = json.loads(server.client().lindex(f"{namespace}queue:low", 0))
    assert job["queue"] == "low"
    assert type(job["created_at"]) is float  # only the processes of the namespace count


@pytest.mark.parametrize("protocol", [2, 3])
def test_either_protocol_works(any_server: Server, connect: Connect, protocol: int) -> None:
    """ENV-4: the same results over RESP2 (the default) and RESP3."""
    register(any_server, "", "7.3.2")
    client = connect(f"{any_server.url}?protocol={protocol}")
    client.push("A", [1])
    client.push_in(4e9, "A", [2])
    client.push_bulk("A", [[n] for n in range(1_001)])
    found = everything(any_server)
    assert found[b"queues"] == {b"default"}
    assert len(found[b"queue:default"]) == 1_002
    assert type(json.loads(found[b"queue:default"][0])["created_at"]) is float
    assert found[b"schedule"][0][1] == 4e9


def test_the_default_is_resp2(server: Server, connect: Connect) -> None:
    """ENV-4: HELLO, which proxies and old servers refuse, is never sent."""
    connect(server.url, generation=8).push("A")
    assert "cmdstat_hello" not in server.client(protocol=2).info("commandstats")


def test_a_password_with_odd_characters(server_factory: ServerFactory, connect: Connect) -> None:
    server = server_factory(password="s3cret/@:%")
    assert connect(server.url, generation=8).push("A")


def test_a_unix_socket(server_factory: ServerFactory, connect: Connect, tmp_path: Path) -> None:
    path = tmp_path / "redis.sock"
    server = server_factory("--unixsocket", str(path))
    assert connect(f"unix://{path}?db=3", generation=8).push("A")
    assert everything(server) == {}  # the contents of database 0
    assert server.client().info("keyspace")["db3"]["keys"] == 2


def test_the_url_comes_from_the_environment(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REDIS_URL", server.url)
    with Client(generation=8) as client:
        assert client.url == server.url
        client.push("A")
    assert server.client().llen("queue:default") == 1


def test_threads_share_a_client(server: Server) -> None:
    """ENV-5: a thread does not read the reply of another thread."""

    def echo(text: str) -> Op[bytes]:
        reply: bytes = yield command("ECHO", text)
        return reply

    with Client(server.url, generation=8) as client, ThreadPoolExecutor(8) as threads:
        texts = [str(n) for n in range(400)]
        assert list(threads.map(lambda text: client.redis.run(echo(text)), texts)) == [
            text.encode() for text in texts
        ]
        jids = list(threads.map(lambda text: client.push("A", [text]), texts))
    stored = server.client().lrange("queue:default", 0, -1)
    assert {json.loads(text)["jid"] for text in stored} == set(jids)
    assert len(stored) == 400


def test_tasks_share_a_client(server: Server) -> None:
    """ENV-5: a task does not read the reply of another; surplus tasks wait for a connection."""

    def echo(text: str) -> Op[bytes]:
        reply: bytes = yield command("ECHO", text)
        return reply

    async def scenario() -> None:
        async with AsyncClient(server.url, generation=8) as client:
            texts = [str(n) for n in range(1_000)]
            replies = await asyncio.gather(*(client.redis.run(echo(text)) for text in texts))
            assert replies == [text.encode() for text in texts]
            await asyncio.gather(*(client.push("A", [text]) for text in texts))

    asyncio.run(scenario())
    assert server.client().llen("queue:default") == 1_000
    assert server.client().info("stats")["total_connections_received"] < 60


def test_a_closed_client_opens_again(server: Server, connect: Connect) -> None:
    client = connect(server.url, generation=8)
    client.push("A")
    client.disconnect()
    client.push("A")
    assert server.client().llen("queue:default") == 2


LIMIT = 1_000


@pytest.mark.parametrize("options", [{}, {"middleware": [lambda _item, call_next: call_next()]}])
def test_a_payload_that_is_too_large_is_refused(
    server: Server, connect: Connect, options: dict[str, Any]
) -> None:
    """PUSH-10: the bytes of the whole payload count; nothing is written."""
    client = connect(server.url, generation=8, max_payload_bytes=LIMIT, **options)
    client.push("A", [""])
    spare = LIMIT - len(server.client().lindex("queue:default", 0))
    for fits in ("x" * spare, "é" * (spare // 2)):
        client.push("A", [fits])
    server.client().flushall()
    for args in (["x" * (spare + 1)], ["é" * spare]):
        with pytest.raises(
            InvalidJob, match=r"^A: the payload has 1,\d{3} bytes, the limit is 1,000 .* reference"
        ):
            client.push("A", args)
        with pytest.raises(InvalidJob, match=r"^A: job 1: the payload"):
            client.push_bulk("A", [[1], args])
    assert server.client().dbsize() == 0


def test_the_size_limit_is_a_setting(server: Server) -> None:
    """PUSH-10: 8 MiB unless it is set; None means no limit."""
    large = "x" * (8 * 1024 * 1024)
    app = App(server.url, generation=8)
    job = app.job(double)
    with pytest.raises(InvalidJob, match="max_payload_bytes"):
        job.enqueue(1, large)
    free = App(server.url, generation=8, max_payload_bytes=None)
    free.job(double).enqueue(1, large)
    assert server.client().llen("queue:default") == 1
    app.close()
    free.close()
    for wrong in (0, -1, True, 1.5, "8MB"):
        with pytest.raises(ConfigError, match=f"max_payload_bytes: {wrong!r} is not a number"):
            Client(server.url, max_payload_bytes=wrong)  # type: ignore[arg-type]


def double(a: int, b: str = "x") -> None: ...


def test_jobs_enqueue_themselves(server: Server) -> None:
    """PAY-11, SCHED-2: every way to enqueue, with options of the definition and of the call."""
    app = App(server.url, generation=8)
    job = app.job(name="Reports::Double", queue="low", retry=3)(double)
    jids = [
        job.enqueue(1),
        job.enqueue(2, b="y"),
        job.options(queue="high", tags=["t"]).enqueue(3),
        job.enqueue_in(60, 4),
        job.enqueue_at(datetime(2096, 10, 2, 7, 6, 40, tzinfo=UTC), 5),
        *job.enqueue_bulk([[6], [7, "z"]]),
    ]
    app.client.close()
    check_enqueued(server, jids)


def test_jobs_enqueue_themselves_from_asyncio(server: Server) -> None:
    """PAY-11 and SCHED-2: the same through the asyncio twins."""
    app = App(server.url, generation=8)
    job = app.job(name="Reports::Double", queue="low", retry=3)(double)

    async def scenario() -> list[str | None]:
        jids = [
            await job.aenqueue(1),
            await job.aenqueue(2, b="y"),
            await job.options(queue="high", tags=["t"]).aenqueue(3),
            await job.aenqueue_in(60, 4),
            await job.aenqueue_at(datetime(2096, 10, 2, 7, 6, 40, tzinfo=UTC), 5),
            *await job.aenqueue_bulk([[6], [7, "z"]]),
        ]
        await app.aclient.close()
        return jids

    check_enqueued(server, asyncio.run(scenario()))


def check_enqueued(server: Server, jids: list[str | None]) -> None:
    found = everything(server)
    low = [json.loads(text) for text in reversed(found[b"queue:low"])]
    [high] = [json.loads(text) for text in found[b"queue:high"]]
    later = [json.loads(text) for text, _ in found[b"schedule"]]
    assert [each["args"] for each in low] == [[1], [2, "y"], [6], [7, "z"]]
    assert (high["args"], high["tags"], high["retry"]) == ([3], ["t"], 3)
    assert [each["args"] for each in later] == [[4], [5]]
    assert found[b"schedule"][1][1] == 4e9
    every = [*low, high, *later]
    assert {each["jid"] for each in every} == set(jids)
    assert {each["class"] for each in every} == {"Reports::Double"}
    assert {each["retry"] for each in every} == {3}
