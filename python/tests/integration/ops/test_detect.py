"""`jobwire detect` on real servers: recorded databases, mixed ones, large ones; it only reads."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from harness.servers import Server
from jobwire import App
from jobwire.console.ops import detect_facts
from jobwire.console.ops.detect import Detection, examine
from jobwire.console.ops.products import Version
from jobwire.ops import Operations
from jobwire.protocol.keys import Keys
from jobwire.protocol.payload import encode
from tests.databases import VERSIONS, databases, load
from tests.integration.inspector.entries import fill
from tests.integration.ops.hostile import HOSTILE
from tests.workers import running

READS = {
    *("info", "dbsize", "type", "sscan", "hgetall", "scan", "llen", "zcard", "memory|usage"),
    *("lrange", "zrange"),
}
HANDSHAKE = {"hello", "auth", "select", "ping", "client|setname", "client|setinfo", "command"}

# Databases in which a recording put payloads that its version does not write by itself.
BY_HAND = {
    "api-timestamp-forms": {"other-client", "sidekiq"},
    "options-each": {"sidekiq-pro", "sidekiq"},
}
OTHER_FORM = {"api-timestamp-forms", "push-client-api"}  # with times of another version
NOTHING = {"7.3.2/push-invalid", "8.1.7/push-invalid"}

# Keys and fields of add-ons, as the facts about them describe their forms.
ADD_ONS: dict[str, list[tuple[Any, ...]]] = {
    "sidekiq-cron": [
        ("SADD", "cron_jobs:default", "cron_job:default:a"),
        ("HSET", "cron_job:default:a", "name", "a", "klass", "A", "cron", "* * * * *"),
    ],
    "sidekiq-scheduler": [("HSET", "schedules", "a", "{}")],
    "sidekiq-unique-jobs": [
        ("HSET", f"uniquejobs:{'a' * 32}:LOCKED", "ab", "1.5"),
        ("ZADD", "uniquejobs:digests", 1, f"uniquejobs:{'a' * 32}"),
    ],
    "sidekiq-status": [("HSET", "sidekiq:status:ab", "status", "queued")],
    "sidekiq-throttled": [("ZADD", "throttled:A:concurrency.v2", 1, "ab")],
    "sidekiq-batch": [("HSET", "BID-abcdefghij-_12", "pending", 1)],
    "sidekiq-limit_fetch": [("SET", "limit_fetch:limit:default", 5)],
    "sidekiq-failures": [("ZADD", "failed", 1, "{}")],
    "sidekiq-pro": [("HSET", "b-abcdefghij-_12", "x", 1), ("SADD", "paused", "default")],
    "sidekiq-enterprise": [("SET", "dear-leader", "web:1:0123456789ab")],
    "gitlab": [("SET", "gitlab-sidekiq-status:ab", 1)],
    "resque": [("SADD", "resque:queues", "default"), ("RPUSH", "resque:queue:default", "{}")],
    "other-program": [("SADD", "rq:queues", "rq:queue:default")],
    "other-layer": [("SADD", "batching:batches", "A")],
    "tracing": [
        ("LPUSH", "queue:traced", encode({"class": "A", "traceparent": "00-a-b-01"})),
        ("SADD", "queues", "traced"),
    ],
}


@pytest.fixture
def operations(server: Server) -> Iterator[Operations]:
    with Operations(server.url) as made:
        yield made


def products(found: Detection) -> set[str]:
    return {writer.product for writer in found.writers}


def spans(found: Detection) -> list[tuple[Version, Version]]:
    """Return the range of versions of each writer that is Sidekiq."""
    return [_range(one.versions) for one in found.writers if one.product == "sidekiq"]


def _range(versions: str) -> tuple[Version, Version]:
    low: Version = (0,)
    high: Version = (99,)
    match versions.replace(",", "").split():
        case [exact]:
            return _numbers(exact), (*_numbers(exact), 0)
        case [first, "or", "newer"]:
            low = _numbers(first)
        case ["before", after]:
            high = _numbers(after)
        case [first, "or", "newer", "before", after]:
            low, high = _numbers(first), _numbers(after)
    return low, high


def _numbers(text: str) -> Version:
    return tuple(map(int, text.split(".")))


def has(found: Detection, release: str) -> bool:
    return any(low <= _numbers(release) < high for low, high in spans(found))


def check_recorded(operations: Operations, client: Any, name: str) -> None:
    release, _, scenario = name.partition("/")
    load(client, databases()[name])
    found = operations.detect()
    expected = {"sidekiq"} if name not in NOTHING else set()
    if any("ActiveJob" in str(key) for key in databases()[name]):
        expected |= {"active-job"} & products(found)
    expected |= BY_HAND.get(scenario, set())
    assert (name, products(found)) == (name, expected)
    if expected:
        count = sum(writer.product == "sidekiq" for writer in found.writers)
        assert count == 1 or scenario in OTHER_FORM, name
        assert has(found, release), name


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_databases_have_one_writer(
    operations: Operations, client: Any, version: str
) -> None:
    """C1 A5: the version is in the range, and no other product is named."""
    names = [name for name in databases() if name.startswith(version)]
    for name in random.Random(5).sample(names, 15):
        check_recorded(operations, client, name)


@pytest.mark.full
def test_all_recorded_databases(operations: Operations, client: Any) -> None:
    """C1 A5: all of them."""
    assert len(databases()) >= 400
    for name in databases():
        check_recorded(operations, client, name)


def check_mixed(operations: Operations, client: Any, seed: int) -> None:
    """Put two recordings and some add-ons into one database."""
    choose = random.Random(seed)
    usual = [
        name
        for name in sorted(databases())
        if name.partition("/")[2] not in {*BY_HAND, *OTHER_FORM} and name not in NOTHING
    ]
    first, second = choose.sample(usual, 2)
    alone = []
    for name in (first, second):
        load(client, databases()[name])
        alone += spans(operations.detect())
    load(client, _both(databases()[first], databases()[second]))
    add_ons = choose.sample(sorted(ADD_ONS), choose.randint(0, 4))
    for name in add_ons:
        for words in ADD_ONS[name]:
            client.execute_command(*words)
    found = operations.detect()
    about = (seed, first, second, add_ons)
    assert (about, products(found) - {"active-job"}) == (about, {"sidekiq", *add_ons})
    # One version may explain what two have written; it does so only if nothing tells them apart.
    both = spans(found)
    for low, high in alone:
        assert any(low < after and first_of < high for first_of, after in both), about
    assert len(both) <= len(alone), about
    releases = {name.partition("/")[0] for name in (first, second)}
    assert len(both) == 1 or all(has(found, release) for release in releases), about
    majors = {_numbers(release)[0] for release in releases}
    for writer in found.writers:
        assert writer.product != "sidekiq" or majors & set(writer.generations), about


def _both(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the keys of two databases; a key of both has the values of both."""
    keys = {each["key"]: dict(each) for each in one}
    for each in other:
        mine = keys.setdefault(each["key"], dict(each, value=type(each["value"])()))
        if isinstance(each["value"], list):
            mine["value"] = mine["value"] + [v for v in each["value"] if v not in mine["value"]]
        elif isinstance(each["value"], dict) and each["type"] == "hash":
            mine["value"] = {**mine["value"], **each["value"]}
        else:
            mine["value"] = each["value"]
    return [*keys.values()]


def test_mixed_databases_name_every_writer(operations: Operations, client: Any) -> None:
    for seed in range(30):
        check_mixed(operations, client, seed)


@pytest.mark.full
def test_many_mixed_databases(operations: Operations, client: Any) -> None:
    """C1 A5."""
    for seed in range(200):
        check_mixed(operations, client, seed)


def test_jobwire_is_known_by_its_keys_and_processes(
    server: Server, operations: Operations, client: Any
) -> None:
    app = App(server.url)
    assert operations.detect().writers == []

    @app.job
    def note() -> None: ...

    note.enqueue()
    with running(app, server):
        found = operations.detect()
    versions = {writer.product: writer.versions for writer in found.writers}
    assert versions["jobwire"] not in ("", "0")
    assert all(writer.certain == (writer.product == "jobwire") for writer in found.writers)
    assert found.findings == []


def test_any_server(any_server: Server) -> None:
    client = any_server.client()
    load(client, databases()["8.1.7/push-plain"])
    with Operations(any_server.url) as operations:
        found = operations.detect()
    assert [writer.generations for writer in found.writers] == [[8]]
    assert found.evidence.server


def test_only_commands_that_read(operations: Operations, client: Any) -> None:
    """C1 A5: also where every product of the table writes, and a hostile one."""
    load(client, databases()["8.1.7/push-plain"])
    for steps in ADD_ONS.values():
        for words in steps:
            client.execute_command(*words)
    client.lpush("queue:default", *HOSTILE)
    client.zadd("dead", dict.fromkeys(HOSTILE, 1))
    client.set("retry", "not a set")
    client.sadd("shop:queues", "a")
    client.sadd("shop:processes", "a")
    before = client.info("persistence")["rdb_changes_since_last_save"]
    client.config_resetstat()
    found = operations.detect()
    called = {name.removeprefix("cmdstat_") for name in client.info("commandstats")}
    assert called - HANDSHAKE - {"config|resetstat"} <= READS
    assert client.info("persistence")["rdb_changes_since_last_save"] == before
    assert products(found) >= set(ADD_ONS)
    assert found.evidence.namespaces == ["shop:"]


def test_commands_that_an_acl_forbids(server: Server, client: Any) -> None:
    """ENV-9: their part is missing, and they are named."""
    rules = "on nopass ~* &* +@all -info -scan -memory"
    client.execute_command("ACL", "SETUSER", "app", "reset", *rules.split())
    load(client, databases()["8.1.7/push-plain"])
    with Operations(server.url.replace("redis://", "redis://app:x@")) as operations:
        found = operations.detect()
    assert set(found.evidence.refused) == {"INFO", "SCAN", "MEMORY"}
    assert products(found) == {"sidekiq"}


def test_a_namespace(server: Server, client: Any) -> None:
    """KEY-4: it acts on one namespace, and names those of Sidekiq and not those of jobwire."""
    for prefix in ("a*:", "b:", "own:"):
        client.lpush(f"{prefix}queue:q", encode({"class": "A", "created_at": 1.5}))
        client.sadd(f"{prefix}queues", "q")
        client.sadd(f"{prefix}processes", "x")
    client.sadd("own:jobwire:owners", "x")
    client.hset("sidekiq:status:ab", "status", "queued")
    client.hset("a*:sidekiq:status:ab", "status", "queued")
    with Operations(server.url, namespace="a*:") as operations:
        found = operations.detect()
    assert products(found) == {"sidekiq", "sidekiq-status"}
    assert found.evidence.scanned == 4
    with Operations(server.url) as operations:
        found = operations.detect()
    assert sorted(found.evidence.namespaces) == ["a*:", "b:"]


def test_a_large_database_costs_bounded_commands(operations: Operations, client: Any) -> None:
    """No command reads a whole key, and the number of commands has a limit."""
    pipe = client.pipeline(transaction=False)
    for number in range(1500):
        pipe.sadd("queues", f"q{number}")
        pipe.lpush(f"queue:q{number}", encode({"class": "A", "created_at": 1.5}))
        pipe.hset(f"sidekiq:status:{number}", "status", "queued")
    pipe.lpush("queue:q0", *[encode({"class": "A", "n": n}) for n in range(20_000)])
    pipe.execute()
    fill(client, "retry", 20_000)
    client.config_resetstat()
    found = examine(operations.inspector.redis.run(detect_facts.collect(Keys(), most_keys=2000)))
    assert found.evidence.scanned < 3000
    stats = client.info("commandstats")
    calls = {name.removeprefix("cmdstat_"): one["calls"] for name, one in stats.items()}
    assert calls["scan"] == 2
    assert calls["sscan"] == 2
    assert calls["llen"] <= detect_facts.MAX_NAMES
    assert calls["lrange"] <= 2 * detect_facts.MAX_NAMES
    assert calls["zrange"] == 3
    assert found.evidence.payloads <= 2 * detect_facts.SAMPLES * detect_facts.MAX_NAMES


def test_large_payloads_are_read_one_at_a_time(operations: Operations, client: Any) -> None:
    large = encode({"class": "A", "args": ["x" * 3_000_000], "created_at": 1.5})
    client.sadd("queues", "q")
    client.lpush("queue:q", *[large] * 20)
    client.zadd("dead", {large: 1})
    assert operations.detect().evidence.payloads == 3
