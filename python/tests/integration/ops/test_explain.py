"""The places of a job, found in a real server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.ops import JobLocation, Operations
from jobwire.protocol.foreign import why_field
from tests.integration.inspector.entries import IDENTITY, payload
from tests.integration.ops.hostile import HOSTILE
from tests.workers import brisk, running


@pytest.fixture
def operations(server: Server) -> Iterator[Operations]:
    with Operations(server.url) as made:
        yield made


def register(client: Any, identity: str = IDENTITY, *queues: str, **fields: Any) -> None:
    info = {"queues": [*queues], "version": "jobwire 1.0", "concurrency": 5}
    client.sadd("processes", identity)
    values = {"info": json.dumps(info), "busy": 0, "beat": time.time(), "concurrency": 5} | fields
    client.hset(identity, mapping=values)
    client.expire(identity, 60)


def places(operations: Operations, jid: str) -> list[str]:
    return [one.place for one in operations.explain(jid).places]


def codes(operations: Operations, jid: str) -> list[str]:
    return [reason.code for reason in operations.explain(jid).reasons]


def test_every_place_is_searched(operations: Operations, client: Any) -> None:
    register(client, IDENTITY, "unregistered")
    for name in ("schedule", "retry", "dead"):
        client.zadd(name, {payload(f"in {name}"): time.time() + 60, **dict.fromkeys(HOSTILE, 1)})
    client.zadd("jobwire:unreadable", {b'["jid"]': 1})
    client.lpush("queue:default", *HOSTILE, *(payload(f"q{n}") for n in range(2500)))
    client.sadd("queues", "default", "empty")
    client.lpush("queue:unregistered", payload("u"))
    hostile = {f"{n}:default": text for n, text in enumerate(HOSTILE)}
    client.hset(f"jobwire:private:{IDENTITY}", mapping={"7:low": payload("held"), **hostile})
    client.hset("jobwire:private:gone:1:2", mapping={"1:low": payload("orphan")})
    record = {"queue": "default", "payload": payload("w").decode(), "run_at": int(time.time())}
    client.hset(f"{IDENTITY}:work", mapping={"t": json.dumps(record)})
    for name in ("schedule", "retry", "dead"):
        assert places(operations, f"in {name}") == [name]
    (one,) = operations.explain("q0").places
    assert (one.place, one.ahead, one.queue) == ("queue:default", len(HOSTILE), "default")
    (one,) = operations.explain("q2499").places
    assert one.ahead == len(HOSTILE) + 2499
    assert codes(operations, "u") == ["queue-not-registered", "next"]
    (one,) = operations.explain("held").places
    assert (one.place, one.identity, one.queue) == ("held", IDENTITY, "low")
    assert one.lease is not None
    assert 50 < one.lease <= 60
    (one,) = operations.explain("orphan").places
    assert (one.place, one.identity, one.lease) == ("held", "gone:1:2", None)
    assert codes(operations, "orphan") == ["held-by-dead-process"]
    assert places(operations, "w") == ["running"]
    assert codes(operations, "nowhere") == ["not-found"]


@pytest.mark.parametrize("jid", ["", "*", "a b", "\n", "\udcff", "ü", '"', "j" * 5000, "[x]"])
def test_any_text_can_be_looked_for(operations: Operations, client: Any, jid: str) -> None:
    """INSP-17: an id is a text, not a pattern."""
    client.lpush("queue:default", *HOSTILE, payload("other"))
    client.sadd("queues", "default")
    client.zadd("retry", dict.fromkeys(HOSTILE, 1))
    wanted = [one for one in operations.explain(jid).places if one.job.jid != jid]
    assert wanted == []
    if jid and jid != "\udcff":
        client.lpush("queue:default", payload(jid))
        assert places(operations, jid) == ["queue:default"]


def test_an_escaped_id_is_found(operations: Operations, client: Any) -> None:
    """A producer may escape every letter."""
    client.sadd("queues", "q")
    client.lpush("queue:q", b'{"class":"A","args":[],"jid":"\\u0061bc","queue":"q"}')
    assert places(operations, "abc") == ["queue:q"]


def test_a_long_queue_is_searched_in_part(operations: Operations, client: Any) -> None:
    client.sadd("queues", "q")
    client.lpush("queue:q", *(payload(f"j{n}") for n in range(2000)))
    assert operations.explain("j1499", examine=1500).places[0].ahead == 1499
    [reason] = operations.explain("j1500", examine=1500).reasons
    assert reason.code == "search-incomplete"
    assert "jobwire explain j1500 --examine" in reason.remedy
    assert operations.explain("x", examine=2001).reasons[0].code == "not-found"


def test_keys_of_another_type_are_no_error(operations: Operations, client: Any) -> None:
    """INSP-28"""
    for key in ("retry", "schedule", "queues", "processes", "jobwire:owners", "dead"):
        client.set(key, "text")
    assert codes(operations, "x") == ["not-found"]
    client.delete("retry", "queues", "processes")
    client.sadd("queues", "q")
    client.set("queue:q", "text")
    client.sadd("processes", IDENTITY)
    client.set(IDENTITY, "text")
    client.zadd("retry", {payload("a", queue="q"): 1})
    assert codes(operations, "a") == ["no-process"] or codes(operations, "a")[0] == "no-poller"


def test_a_real_worker(server: Server, operations: Operations) -> None:
    """A job that runs, one that waits for a thread, one in a paused queue, one that is due."""
    app = App()
    stop: list[bool] = []

    @app.job(name="Hold")
    def hold() -> None:
        wait_until(lambda: stop)

    client = server.client()
    job = '{"class":"Hold","args":[],"jid":"%s","queue":"default","retry":true}'
    client.sadd("queues", "default", "paused")
    client.lpush("queue:default", job % "first")
    client.lpush("queue:paused", job % "second")
    client.sadd("jobwire:paused", "paused")
    timings = brisk(heartbeat_interval=0.1)
    queues = {"default": 1, "paused": 1}
    with running(app, server, queues=queues, timings=timings, concurrency=1):
        wait_until(lambda: codes(operations, "first") == ["running"])
        where: list[JobLocation] = [*operations.explain("first").places]
        assert {one.place for one in where} == {"held", "running"}
        assert codes(operations, "second") == ["queue-paused"]
        client.lpush("queue:default", job % "third")
        wait_until(
            lambda: (
                "threads-busy" in codes(operations, "third")
                or places(operations, "third") == ["held"]
            )
        )
        stop.append(True)
        wait_until(lambda: codes(operations, "first") == ["not-found"])
    assert codes(operations, "second") == ["queue-paused", "no-process"]


ODD: list[Any] = [
    None,
    0,
    -1,
    1e400,
    "",
    "\x1b[2J",
    [],
    {},
    [[]],
    {"q": -5},
    {"q": 1e300},
    True,
    ["q", 7, None],
]


def test_odd_heartbeats_are_no_error(operations: Operations, client: Any) -> None:
    """INSP-3, INSP-25: any program may register, with any values."""
    client.sadd("queues", "q")
    client.lpush("queue:q", payload("j", queue="q"))
    for number, value in enumerate(ODD):
        for name in ("queues", "weights", "capsules", "version", "concurrency", "started_at"):
            identity = f"p{number}:{name}"
            info: dict[str, Any] = {"queues": ["q"], "version": "8.1.7", name: value}
            info["capsules"] = {"c": {"weights": value, "mode": value}} if number % 2 else value
            client.sadd("processes", identity)
            values = {"info": json.dumps(info), "busy": "x", "beat": repr(value), "quiet": "no"}
            client.hset(identity, mapping=values)
            client.expire(identity, 60)
    client.hset("p0:queues", mapping={"info": "[" * 10_000})
    client.hset("p0:queues:work", mapping={"t": "{", "u": b"\xff"})
    assert [one.place for one in operations.explain("j").places] == ["queue:q"]
    findings = operations.doctor()
    assert "process-unreadable" in {one.code for one in findings}
    for one in findings:
        assert one.sentence.isprintable()


def limited(jid: str, **limit: Any) -> bytes:
    return payload(jid, jw_limit={"name": "api", **limit})


def test_the_limit_of_a_job(operations: Operations, client: Any) -> None:
    """X-LIMIT-3, X-LIMIT-9: the job that waits, that has a slot, and that comes too late."""
    register(client, IDENTITY, "default")
    client.sadd("queues", "default")
    client.lpush("queue:default", limited("third", at_once=2), limited("has", at_once=2))
    waiting = {limited(jid, at_once=2): time.time() + 300 for jid in ("first", "second")}
    client.zadd("schedule", waiting)

    def sentences(jid: str) -> list[str]:
        reasons = operations.explain(jid).reasons
        return [one.sentence for one in reasons if "limit" in one.code or "slot" in one.code]

    assert sentences("first") == []
    ends = time.time() * 1000 + 60_000
    client.zadd("jobwire:limit:api:held", {"1:has:t": ends, "1:x:": ends, "1:y:t": 5})
    client.zadd("jobwire:limit:api:line", {"first": 1, "second": 2})
    assert codes(operations, "first") == ["waits-for-limit"]
    slots = "It waits for limit api: 2 of 2 slots are taken"
    assert sentences("first") == [f"{slots}. has, x have slots."]
    assert sentences("second") == [f"{slots}, and 1 job waits before it. has, x have slots."]
    assert sentences("third") == ["Limit api is reached, so it must wait when a worker takes it."]
    assert sentences("has") == ["It has a slot of limit api."]

    rate = {"rate": 2, "per": 60, "burst": 1}
    client.zadd("schedule", {limited("late", **rate): time.time() + 90})
    client.lpush("queue:default", limited("comes", **rate))
    client.set("jobwire:limit:api:full", f"{(time.time() + 90) * 1e6:.0f}")
    client.zadd("jobwire:limit:api:line", {"late": (time.time() + 90) * 1e6})
    (late,) = sentences("late")
    assert late.startswith("It waits for limit api, which lets 2 jobs start in 60 s; it may start")
    client.zadd("schedule", {limited("waits", window=3, per=60): time.time() + 90})
    client.zadd("jobwire:limit:api:line", {"waits": (time.time() + 90) * 1e6})
    (waits,) = sentences("waits")
    assert waits.startswith("It waits for limit api, which lets 3 jobs start in any 60 s; it may")
    (comes,) = sentences("comes")
    assert comes.startswith("Limit api is reached, so it must wait for ")


def test_the_batch_of_a_job(operations: Operations, client: Any) -> None:
    """X-BATCH-2: of a member, of a callback, of a batch that is cancelled or gone."""
    batch = {"id": "b", "queue": "q"}
    client.lpush("queue:q", payload("m", jw_batch=batch), payload("c", jw_callback=batch))
    client.sadd("queues", "q")

    def sentences(jid: str) -> list[str]:
        reasons = operations.explain(jid).reasons
        return [one.sentence for one in reasons if "batch" in one.code]

    assert sentences("m") == []
    client.hset("jobwire:batch:b", mapping={"state": "closed", "total": 3})
    client.sadd("jobwire:batch:b:open", "m", "n")
    assert sentences("m") == [
        "It is a member of batch b, which is closed: 2 of 3 members are open, 0 failed."
    ]
    assert sentences("c") == ["It is a callback of batch b."]
    client.hset("jobwire:batch:b", "state", "cancelled")
    assert sentences("m") == ["Its batch b is cancelled, so a worker that takes it drops it."]


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("unknown", "a worker that took it knows no class A"),
        ("version", "it is of a newer version of A than the worker that took it"),
        ("size", "its compressed arguments inflate to more than the worker that took it allows"),
        ("bid", "it needs a feature of another product (bid)"),
        ("", "it needs a feature of another product"),
    ],
)
def test_a_parked_job(operations: Operations, client: Any, reason: str, sentence: str) -> None:
    """X-PARK-4: with its reason, which may be lost."""
    job = payload("p")
    client.zadd("jobwire:parked", {job: time.time()})
    if reason:
        client.hset("jobwire:parked:why", why_field(job), reason)
    explanation = operations.explain("p")
    assert [one.place for one in explanation.places] == ["parked"]
    (found,) = explanation.reasons
    assert (found.code, found.sentence) == ("parked", f"It is parked: {sentence}.")
    assert found.remedy.endswith("jobwire inspect unpark --class A")
