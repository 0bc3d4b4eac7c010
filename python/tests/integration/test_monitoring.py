"""The numbers of a Redis for Prometheus, read by prometheus-client's own parser."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse

from harness.servers import Server
from jobwire import Client, Inspector
from jobwire.connection.connection import Connection
from jobwire.connection.sync import SyncRedis
from jobwire.inspect.fleet import fleet
from jobwire.monitoring import fleet_exposition
from jobwire.monitoring.routes import FleetReader, FleetReaders, fleet_metrics, queues
from jobwire.protocol.keys import Keys
from jobwire.protocol.wire import Batch, Op

OPENMETRICS = "application/openmetrics-text; version=1.0.0"


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


@pytest.fixture
def inspector(server: Server) -> Iterator[Inspector]:
    with Inspector(server.url) as inspector:
        yield inspector


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return the value of each sample by name and labels; a repeated one fails."""
    found: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}
    for family in parse(text.decode()):
        for sample in family.samples:
            key = sample.name, tuple(sorted(sample.labels.items()))
            assert key not in found, key
            found[key] = sample.value
    return found


def value(text: bytes, name: str, **labels: str) -> float:
    return samples(text)[name, tuple(sorted(labels.items()))]


def fill(server: Server, client: Client) -> None:
    redis = server.client()
    for number in range(3):
        client.push("Hard", [number], queue="critical")
    client.push("Hard", [1], queue="mail")
    client.push_in(3600, "Hard", [1])
    redis.set("stat:processed", 17)
    redis.set("stat:failed", 4)
    redis.set("jobwire:stat:recovered", 2)
    redis.set("jobwire:stat:lost", 1)
    redis.zadd("retry", {'{"class":"Hard","args":[],"jid":"a"}': time.time() - 120})
    redis.zadd("dead", {f'{{"jid":"{n}"}}': n for n in range(5)})
    redis.zadd("jobwire:unreadable", {"[1]": 1})
    redis.zadd("jobwire:parked", {'{"jid":"p"}': 1})
    redis.set("jobwire:stat:handed_over", 7)
    redis.sadd("jobwire:paused", "mail")


def register(server: Server, identity: str, *queues: str, **fields: str | int) -> None:
    """Register a process as Sidekiq 7 does."""
    redis = server.client()
    redis.sadd("processes", identity)
    info = {"hostname": "h", "pid": 1, "concurrency": 10, "queues": [*queues], "labels": []}
    state = {"busy": 3, "quiet": "false", "rss": 1000, "beat": time.time(), **fields}
    redis.hset(identity, mapping={"info": json.dumps(info), **state})


def test_the_numbers_are_those_of_redis(
    server: Server, client: Client, inspector: Inspector
) -> None:
    """INSP-1, STAT-1, REL-9, REL-12: also for processes of Sidekiq."""
    fill(server, client)
    register(server, "h:1:aa", "critical", "mail")
    register(server, "h:2:bb", "critical", quiet="true", busy=1)
    server.client().sadd("processes", "h:3:expired")
    text = fleet_exposition(inspector.fleet(), seconds=0.25).body
    expected = {
        "jobwire_redis_up": 1,
        "jobwire_scrape_duration_seconds": 0.25,
        "jobwire_jobs_processed_total": 17,
        "jobwire_jobs_failed_total": 4,
        "jobwire_jobs_recovered_total": 2,
        "jobwire_outcomes_late_total": 1,
        "jobwire_jobs_handed_over_total": 7,
        "jobwire_queues": 2,
        "jobwire_queues_paused": 1,
        "jobwire_jobs_enqueued": 4,
        "jobwire_concurrency": 20,
        "jobwire_jobs_busy": 4,
        "jobwire_processes_memory_bytes": 2_048_000,
    }
    assert {name: value(text, name) for name in expected} == expected
    assert value(text, "jobwire_queue_jobs", queue="critical") == 3
    assert 0 < value(text, "jobwire_queue_latency_seconds", queue="critical") < 60
    assert value(text, "jobwire_queue_processes", queue="critical") == 1
    assert value(text, "jobwire_queue_processes", queue="mail") == 1
    assert value(text, "jobwire_queue_paused", queue="mail") == 1
    assert value(text, "jobwire_queue_paused", queue="critical") == 0
    assert value(text, "jobwire_processes", state="fetching") == 1
    assert value(text, "jobwire_processes", state="quiet") == 1
    sizes = {"scheduled": 1, "retry": 1, "dead": 5, "unreadable": 1, "parked": 1}
    for name, size in sizes.items():
        assert value(text, "jobwire_set_jobs", set=name) == size
    assert value(text, "jobwire_set_overdue_seconds", set="scheduled") == 0
    assert 120 <= value(text, "jobwire_set_overdue_seconds", set="retry") < 180
    assert value(text, "jobwire_parked_seconds") > 1e9


def test_a_scrape_is_two_round_trips_and_walks_no_set(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many queues, processes and jobs there are."""
    redis = server.client()
    pipe = redis.pipeline()
    for number in range(500):
        pipe.sadd("queues", f"q{number}")
        pipe.rpush(f"queue:q{number}", '{"class":"A"}')
    pipe.zadd("retry", {str(number): number for number in range(5_000)})
    pipe.execute()
    for number in range(120):
        register(server, f"h:{number}:aa", "q1")
    op = fleet(Keys(), now=1.0)
    batches = []
    shell = SyncRedis(server.url)
    try:
        step = next(op)
        while True:
            assert isinstance(step, Batch)
            batches.append([command.args[0] for command in step.steps])
            step = op.send(shell.run(_only(step)))
    except StopIteration as done:
        numbers = done.value
    finally:
        shell.close()
    assert len(batches) == 2
    bounded = {"GET", "ZCARD", "ZRANGE", "SMEMBERS", "LLEN", "LINDEX", "HGETALL"}
    assert {command for batch in batches for command in batch} == bounded
    assert (len(numbers.queues), len(numbers.processes)) == (500, 120)
    sent = []
    send = Connection.send
    with Inspector(server.url) as inspector:
        inspector.fleet()  # connects

        def counted(self: Connection, message: bytes) -> None:
            sent.append(message)
            send(self, message)

        monkeypatch.setattr(Connection, "send", counted)
        inspector.fleet()
    assert len(sent) == 2


def _only(step: Batch) -> Op[Any]:
    return (yield step)


def test_the_number_of_queue_labels_has_a_limit(
    server: Server, client: Client, inspector: Inspector
) -> None:
    for number in range(30):
        client.push("A", [], queue=f"q{number:02}")
    server.client().rpush("queue:q29", '{"enqueued_at": 1000}')
    text = fleet_exposition(inspector.fleet(), most_queues=10).body
    names = {labels for name, labels in samples(text) if name == "jobwire_queue_jobs"}
    assert names == {(("queue", f"q{n:02}"),) for n in range(10)} | {(("queue", "(other)"),)}
    assert value(text, "jobwire_queue_jobs", queue="(other)") == 21
    assert value(text, "jobwire_queue_latency_seconds", queue="(other)") > 1e6
    assert value(text, "jobwire_jobs_enqueued") == 31
    with pytest.raises(KeyError):
        value(text, "jobwire_queue_paused", queue="(other)")


def test_odd_names_make_valid_text(server: Server, inspector: Inspector) -> None:
    """INSP-3: names that are not UTF-8, with quotes and ends of lines, very long, and equal."""
    redis = server.client()
    names = [b"\xff", b"\xfe", b'a"b\\', b"new\nline", "ü\u2028".encode(), b"x" * 500]
    names += [b"x" * 400, b"(other)"]
    for name in names:
        redis.sadd("queues", name)
        redis.rpush(b"queue:" + name, b"no payload")
    redis.set("queue:broken", "no list")
    redis.sadd("queues", "broken")
    text = fleet_exposition(inspector.fleet()).body
    assert sum(v for (name, _), v in samples(text).items() if name == "jobwire_queue_jobs") == 8
    assert value(text, "jobwire_queue_jobs", queue='a"b\\') == 1
    assert value(text, "jobwire_queue_jobs", queue="x" * 200) == 2


def test_openmetrics_is_served_to_those_who_ask(server: Server, inspector: Inspector) -> None:
    made = fleet_exposition(inspector.fleet(), accept=OPENMETRICS)
    assert made.content_type.startswith("application/openmetrics-text")
    read = parse_openmetrics(made.body.decode())  # type: ignore[no-untyped-call]
    families = {family.name: family for family in read}
    assert families["jobwire_jobs_processed"].type == "counter"
    assert families["jobwire_queue_latency_seconds"].type == "gauge"


def test_without_redis_the_scrape_says_so() -> None:
    readers = FleetReaders(lambda: {"": ("redis://127.0.0.1:1/0", "")})
    reply = fleet_metrics(readers.read)("", "")
    assert reply is not None
    assert value(reply.body, "jobwire_redis_up") == 0
    assert not any("processed" in name for name, _ in samples(reply.body))
    reply = queues(readers.read)("", "")
    assert reply is not None
    assert reply.status == 503
    assert "127.0.0.1:1" in json.loads(reply.body)["error"]


def test_queues_for_an_autoscaler(server: Server, client: Client) -> None:
    """One queue by name, or all; a queue that does not exist yet is empty."""
    fill(server, client)
    readers = FleetReaders(lambda: {"": (server.url, "")})
    try:
        answer = queues(readers.read)
        everything = answer("", "")
        one, none = answer("critical", ""), answer("no", "")
    finally:
        readers.close()
    assert everything is not None
    assert one is not None
    assert none is not None
    body = json.loads(everything.body)
    assert body["enqueued"] == 4
    assert body["queues"]["critical"] == json.loads(one.body)
    assert json.loads(one.body)["size"] == 3
    assert 0 < json.loads(one.body)["latency"] < 60
    assert json.loads(none.body) == {"size": 0, "latency": 0, "paused": False, "processes": 0}
    assert none.status == 200


def test_many_scrapes_read_redis_once_a_second(server: Server, client: Client) -> None:
    reader = FleetReader(server.url, fresh=3600.0)
    try:
        first, _ = reader.read()
        client.push("A", [])
        assert reader.read()[0] is first
    finally:
        reader.close()
