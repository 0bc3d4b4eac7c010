"""The doctor on real servers."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from harness.servers import Server
from jobwire.console.ops import doctor_facts
from jobwire.console.ops.doctor import Limits
from jobwire.ops import Operations
from jobwire.protocol.keys import Keys
from tests.integration.inspector.entries import IDENTITY, fill, payload
from tests.integration.ops.hostile import HOSTILE
from tests.integration.ops.test_explain import register
from tests.server_fixtures import ServerFactory

PATIENT = Limits(latency=60.0)


@pytest.fixture
def operations(server: Server) -> Iterator[Operations]:
    with Operations(server.url) as made:
        yield made


def codes(operations: Operations) -> set[str]:
    return {finding.code for finding in operations.doctor(PATIENT)}


def test_an_empty_server(any_server: Server) -> None:
    """Persistence is off in the tests' servers; nothing else is wrong."""
    with Operations(any_server.url) as operations:
        assert codes(operations) <= {"no-persistence", "snapshots-only"}


def test_everything_wrong_at_once(operations: Operations, client: Any) -> None:
    client.config_set("maxmemory-policy", "allkeys-lru")
    register(client, IDENTITY, "served", beat=time.time() + 500)
    client.sadd("processes", "gone:1:2")
    client.sadd("queues", "served", "left")
    client.lpush("queue:left", payload("a"), *HOSTILE)
    client.lpush("queue:lost", payload("b"))
    client.lpush("queue:served", payload("c"))
    client.hset("jobwire:private:gone:1:2", "1:q", payload("d"))
    client.zadd("schedule", {payload("e"): time.time() - 900})
    client.zadd("dead", {b"x" * 300_000: 1})
    client.zadd("jobwire:unreadable", {b"[]": 1})
    client.zadd("jobwire:parked", {payload("p"): time.time() - 600, payload("q"): time.time()})
    client.sadd(f"jobwire:classes:{IDENTITY}", "A", "B")
    client.set("retry", "text")
    found = {finding.code: finding for finding in operations.doctor(PATIENT)}
    assert set(found) >= {
        *("eviction", "clock-of-processes", "process-without-hash", "queue-abandoned"),
        *("queue-not-registered", "held-by-dead-process", "private-hash-without-owner"),
        *("poller-stopped", "huge-payloads", "unreadable-entries", "key-of-wrong-type"),
        "queue-late",
    }
    assert found["queue-abandoned"].evidence == {"left": len(HOSTILE) + 1}
    assert found["queue-not-registered"].evidence == {"queues": ["lost"]}
    assert found["key-of-wrong-type"].evidence == {"retry": "string, not zset"}
    parked = found["parked-jobs"]
    assert 599 < parked.evidence["oldest_s"] < 700
    assert parked.evidence["announced_classes"] == 2
    assert "the oldest one for 6" in parked.sentence
    assert 490 < found["clock-of-processes"].evidence[IDENTITY] < 510
    json.dumps([dict(finding.evidence) for finding in found.values()])


def test_commands_that_an_acl_forbids(server: Server, client: Any) -> None:
    """ENV-9: they are named, and none of the commands is carried out."""
    rules = "on nopass ~* &* +@all -info -config -xadd -zadd -memory -scan -acl"
    client.execute_command("ACL", "SETUSER", "app", "reset", *rules.split())
    client.zadd("retry", {payload("a"): 1})
    before = client.info("persistence")["rdb_changes_since_last_save"]
    with Operations(server.url.replace("redis://", "redis://app:x@")) as operations:
        (finding,) = [one for one in operations.doctor(PATIENT) if one.code == "commands-refused"]
    assert set(finding.evidence) == {"INFO", "CONFIG", "XADD", "ZADD", "MEMORY", "SCAN"}
    assert finding.severity == "warning"
    assert client.info("persistence")["rdb_changes_since_last_save"] == before
    assert [*client.scan_iter()] == [b"retry"]


@pytest.mark.parametrize("forbidden", ["-discard", "-exec", "-discard -exec", "-multi", "-ping"])
def test_a_trial_leaves_the_connection_usable(server: Server, client: Any, forbidden: str) -> None:
    """A transaction that the user may begin and not end would swallow all later commands."""
    rules = f"on nopass ~* &* +@all {forbidden}"
    client.execute_command("ACL", "SETUSER", "app", "reset", *rules.split())
    with Operations(server.url.replace("redis://", "redis://app:x@")) as operations:
        found = {finding.code: finding for finding in operations.doctor(PATIENT)}
        assert operations.inspector.stats().processed == 0
    needed = {"-discard -exec": "EXEC", "-multi": "MULTI"}.get(forbidden)
    refused = found["commands-refused"].evidence if "commands-refused" in found else {}
    assert set(refused) == ({needed} if needed else set())
    assert [*client.scan_iter()] == []


def test_a_replica(server: Server, server_factory: ServerFactory) -> None:
    replica = server_factory(
        "--replicaof", "127.0.0.1", server.url.rpartition(":")[2].partition("/")[0]
    )
    with Operations(replica.url) as operations:
        assert "replica" in codes(operations)


def test_a_full_server(server: Server, client: Any) -> None:
    """The doctor reads, so it works without memory."""
    client.config_set("maxmemory", "1")
    with Operations(server.url) as operations:
        assert "memory-nearly-full" in codes(operations)


def test_persistence_is_told_apart(operations: Operations, client: Any) -> None:
    client.config_set("save", "")
    client.config_set("appendonly", "no")
    assert "no-persistence" in codes(operations)
    client.config_set("save", "3600 1")
    assert "snapshots-only" in codes(operations)
    client.config_set("appendonly", "yes")
    assert not {"no-persistence", "snapshots-only"} & codes(operations)


def test_a_large_database_costs_bounded_commands(operations: Operations, client: Any) -> None:
    """No command reads a whole queue, set or keyspace."""
    pipe = client.pipeline(transaction=False)
    for number in range(2000):
        pipe.sadd("queues", f"q{number}")
        pipe.lpush(f"queue:q{number}", payload(f"j{number}"))
        pipe.set(f"foreign:{number}", 1)
    pipe.execute()
    fill(client, "retry", 20_000)
    client.config_resetstat()
    run = operations.inspector.redis.run
    facts = run(doctor_facts.collect(Keys(), clock_ahead=0.0, latency=0.0, most_keys=1000))
    assert 1000 <= facts.scanned < 1200
    stats = client.info("commandstats")
    assert stats["cmdstat_scan"]["calls"] == 1
    assert stats["cmdstat_memory|usage"]["calls"] == doctor_facts.MAX_MEASURED
    assert {"cmdstat_keys", "cmdstat_smembers", "cmdstat_lrange"} & set(stats) == set()
    facts = run(doctor_facts.collect(Keys(), clock_ahead=0.0, latency=0.0))
    assert facts.scanned >= 4000
    assert facts.unregistered == []


def test_a_namespace(server: Server, client: Any) -> None:
    """KEY-4: the keys of other namespaces do not count."""
    client.lpush("queue:other", b"x")
    client.lpush("{a}:queue:own", b"x")
    client.hset("jobwire:private:gone:1:2", "1:q", b"x")
    with Operations(server.url, namespace="{a}:") as operations:
        found = {one.code: one for one in operations.doctor(PATIENT)}
    assert found["queue-not-registered"].evidence == {"queues": ["own"]}
    assert "held-by-dead-process" not in found
