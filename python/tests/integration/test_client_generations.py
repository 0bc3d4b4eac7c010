"""The generation that a client writes, and its namespace."""

from __future__ import annotations

import json

import pytest

from harness.servers import Server
from tests.integration.clients import Connect, listening, register


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
