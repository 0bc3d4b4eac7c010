"""The record that a process keeps of itself in Redis."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from harness.servers import Server
from jobwire.connection.sync import SyncRedis
from jobwire.errors import RedisRefused
from jobwire.inspect.sync import Inspector
from jobwire.protocol.classes import class_of, is_served
from jobwire.protocol.foreign import why_field
from jobwire.protocol.heartbeat import LEASE_S, HeartbeatSample, Work, beat, prune, retire
from jobwire.protocol.key_types import explained
from jobwire.protocol.keys import Keys
from jobwire.protocol.parking import PAGE_SIZE, unpark_known
from tests.integration.clients import everything, listening

NOW = 1_795_192_067.25
ME = "web-1:42:0123456789ab"
KEYS = Keys()
WORK = Work("a:b", '{"class":"A","args":["é\\u0000"], "n":1.50}'.encode(), run_at=NOW)


@pytest.fixture
def shell(any_server: Server) -> Iterator[SyncRedis]:
    made = SyncRedis(any_server.url)
    yield made
    made.close()


def sample(*works: str, quiet: bool = False, classes: Sequence[str] = ()) -> HeartbeatSample:
    works_by_thread = dict.fromkeys(works, WORK)
    return HeartbeatSample(
        NOW, works_by_thread, quiet=quiet, rss=34_496, rtt_us=105, classes=classes
    )


def test_a_beat_is_one_transaction(any_server: Server, shell: SyncRedis) -> None:
    """BEAT-1, BEAT-5, BEAT-14, BEAT-15 and SIG-4: a reader never sees a partial record."""
    with listening(any_server) as heard:
        shell.run(beat(KEYS, ME, b"{}", 5, sample("t1", "t2")))
        names = [line.name for line in heard()]
    assert names == [
        *("MULTI", "UNLINK", "HSET", "EXPIRE", "HSET", "EXPIRE"),
        *("SADD", "HSET", "EXPIRE", "RPOP", "UNLINK", "EXEC"),
    ]


def test_the_lease(any_server: Server, shell: SyncRedis) -> None:
    """BEAT-1 and REL-3: every beat renews the 60 s of the lease and of the work records."""
    client = any_server.client()
    for _ in range(2):
        shell.run(beat(KEYS, ME, b"{}", 5, sample("t1")))
        for key in (ME, f"{ME}:work", f"{ME}:workers"):
            assert LEASE_S - 5 <= client.ttl(key) <= LEASE_S == 60
            client.expire(key, 3)


def test_a_beat_announces_classes(any_server: Server, shell: SyncRedis) -> None:
    """X-CLASS-1: in the transaction of the lease. X-CLASS-2: withdrawn when quiet, and at exit."""
    client, key = any_server.client(), f"jobwire:classes:{ME}"
    with listening(any_server) as heard:
        shell.run(beat(KEYS, ME, b"{}", 5, sample(classes=["A", "B::C"])))
        names = [line.name for line in heard()]
    assert names[-7:] == ["SADD", "HSET", "EXPIRE", "RPOP", "SADD", "EXPIRE", "EXEC"]
    assert client.smembers(key) == {b"A", b"B::C"}
    assert LEASE_S - 5 <= client.ttl(key) <= LEASE_S == 60
    with Inspector(any_server.url) as inspector:
        assert inspector.classes() == {"A": [ME], "B::C": [ME]}
    shell.run(beat(KEYS, ME, b"{}", 5, sample(quiet=True)))
    assert not client.exists(key)
    shell.run(beat(KEYS, ME, b"{}", 5, sample(classes=["A"])))
    shell.run(retire(KEYS, ME))
    assert not client.exists(key)


def test_another_process_that_runs_a_class_in_a_queue(any_server: Server, shell: SyncRedis) -> None:
    """X-CLASS-3: announced, alive and serving the queue."""
    client = any_server.client()

    def served(name: str, queue: str = "default") -> bool:
        return shell.run(is_served(KEYS, ME, name, queue))

    assert not served("A")
    client.sadd("processes", ME, "other", "odd", "gone", b"\xff")
    client.sadd(f"jobwire:classes:{ME}", "Mine")
    for name in ("other", "odd", "gone"):
        client.sadd(f"jobwire:classes:{name}", "A")
    assert not served("A")  # none has a heartbeat
    client.hset("odd", "info", "[")
    client.hset("other", "info", '{"queues":5}')
    assert not served("A")
    client.hset("other", "info", '{"queues":["default"]}')
    assert [served(*one) for one in (("A",), ("A", "low"), ("B",), ("Mine",))] == [
        *(True, False, False, False)
    ]
    assert class_of({"class": 5}) == ""
    assert class_of({"class": "A"}) == "A"


@pytest.mark.parametrize("rising", [True, False])
def test_the_first_process_that_knows_a_class_unparks_its_jobs(
    any_server: Server, shell: SyncRedis, rising: bool
) -> None:
    """X-CLASS-6: those that were parked as unknown, or lost the reason, and name its queues."""
    client: Any = any_server.client()
    texts = [b'{"class":"A","queue":"q","n":%d}' % n for n in range(3 * PAGE_SIZE)]
    other = {
        b'{"class":"A","queue":"q","bid":"x"}': "bid",
        b'{"class":"A","queue":"another"}': "unknown",
        b'{"class":"A"}': "unknown",
        b'{"class":"B","queue":"q"}': "unknown",
        b"{": "unknown",
    }
    scores = {text: 100 + at / 8 * rising for at, text in enumerate([*other, *texts])}
    client.zadd("jobwire:parked", scores)
    why = dict.fromkeys(texts[1:], "unknown") | other
    client.hset("jobwire:parked:why", mapping={why_field(k): v for k, v in why.items()})
    knows = lambda fields: fields["class"] == "A"  # noqa: E731
    assert shell.run(unpark_known(KEYS, knows, {"q"}, 100 + 2 * PAGE_SIZE)) == 0
    assert shell.run(unpark_known(KEYS, knows, {"q"}, -math.inf)) == len(texts)
    assert client.lrange("queue:q", 0, -1)[::-1] == (texts if rising else sorted(texts))
    assert {*client.zrange("jobwire:parked", 0, -1)} == {*other}
    assert client.hlen("jobwire:parked:why") == len(other)
    client.delete("jobwire:parked", "queue:q")
    client.zadd("jobwire:parked", {texts[0]: 1})
    client.set("queue:q", "")
    assert shell.run(unpark_known(KEYS, knows, {"q"}, -math.inf)) == 0
    assert client.zcard("jobwire:parked") == 1
    assert client.hlen("jobwire:parked:why") == len(other)
    client.delete("jobwire:parked")
    assert shell.run(unpark_known(KEYS, knows, {"q"}, 1)) == 0
    assert client.exists("jobwire:parked:why")
    assert shell.run(unpark_known(KEYS, knows, {"q"}, -math.inf)) == 0
    assert not client.exists("jobwire:parked:why")  # a crash had left reasons


def test_pruning(any_server: Server, shell: SyncRedis) -> None:
    """BEAT-8, BEAT-21: names without a hash are removed, once a minute for all processes."""
    client = any_server.client()
    shell.run(beat(KEYS, ME, b"{}", 5, sample()))
    client.sadd("processes", "gone:1:ab", "gone:2:cd", b"\xff")
    assert shell.run(prune(KEYS)) == 3
    assert client.smembers("processes") == {ME.encode()}
    assert client.get("process_cleanup") == b"1"
    assert 55 <= client.ttl("process_cleanup") <= 60
    client.sadd("processes", "gone:3:ef")
    assert shell.run(prune(KEYS)) == 0
    client.delete("process_cleanup")
    assert shell.run(prune(KEYS)) == 1


def test_pruning_nothing(any_server: Server, shell: SyncRedis) -> None:
    """BEAT-8: an empty set, or one whose processes are all alive."""
    assert shell.run(prune(KEYS)) == 0
    shell.run(beat(KEYS, ME, b"{}", 5, sample()))
    any_server.client().delete("process_cleanup")
    assert shell.run(prune(KEYS)) == 0
    assert any_server.client().smembers("processes") == {ME.encode()}


def test_a_namespace_is_kept_to(any_server: Server, shell: SyncRedis) -> None:
    """KEY-4: in a beat, an exit and pruning."""
    keys = Keys("app:")
    any_server.client().lpush(f"app:{ME}-signals", "TSTP")
    assert shell.run(beat(keys, ME, b"{}", 5, sample("t1"))).signal == "TSTP"
    shell.run(prune(keys))
    assert set(everything(any_server)) == {
        b"app:processes",
        b"app:process_cleanup",
        f"app:{ME}".encode(),
        f"app:{ME}:work".encode(),
        f"app:{ME}:workers".encode(),
    }
    shell.run(retire(keys, ME))
    assert set(everything(any_server)) == {b"app:process_cleanup", f"app:{ME}".encode()}


def test_an_error_about_a_type_names_the_keys(any_server: Server, shell: SyncRedis) -> None:
    """REL-1: the error of the server does not name them, which leaves the mistake unfound."""
    wrong, other = RedisRefused("WRONGTYPE Operation"), RedisRefused("OOM command not allowed")
    assert shell.run(explained(wrong, KEYS, ME)) is wrong
    any_server.client().mset({"processes": 1, ME: 2})
    assert str(shell.run(explained(wrong, KEYS, ME))) == (
        f"WRONGTYPE processes is a string, not a set: delete or rename it; "
        f"{ME} is a string, not a hash: delete or rename it"
    )
    assert shell.run(explained(other, KEYS, ME)) is other
