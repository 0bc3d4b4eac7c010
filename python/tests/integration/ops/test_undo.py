"""Deletions and their undo: the same bytes, scores and order as before."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

from harness.servers import Server
from jobwire.console.ops import undo
from jobwire.errors import ConfigError, RedisRefused
from jobwire.inspect import Filter
from jobwire.ops import BulkState, Operations, Selection
from jobwire.protocol.keys import Keys
from tests.integration.inspector.entries import NOW, fill, payload, snapshot
from tests.integration.ops.hostile import HOSTILE


def populate(client: Any) -> None:
    """Write entries of every kind into every place, with scores of every kind."""
    client.sadd("queues", "default", "low", "größe")
    classes = [("Even", "Odd")[number % 2] for number in range(1203)]
    jobs = [payload(f"q{n:06}", **{"class": name}) for n, name in enumerate(classes)]
    client.lpush("queue:default", *jobs)
    client.lpush("queue:größe", *HOSTILE, payload("again"), payload("again"))
    scores = ["inf", "-inf", "0.1", "1795192067.2500001", "-0.0001", "17"]
    for name in ("schedule", "retry", "dead", "unreadable"):
        key = "jobwire:unreadable" if name == "unreadable" else name
        fill(client, key, 1100, lambda n: n / 7)
        client.execute_command(
            "ZADD", key, *(word for pair in zip(scores, HOSTILE, strict=False) for word in pair)
        )
        client.zadd(name, dict.fromkeys(HOSTILE[len(scores) :], 5.5))


def finish(states: Any) -> BulkState:
    last: BulkState
    *_, last = states
    return last


ACTS: dict[str, Callable[[Operations], str]] = {
    **{
        f"clear {place}": lambda ops, place=place: ops.clear(place).undo  # type: ignore[misc]
        for place in ("schedule", "retry", "dead", "unreadable", "queue:default", "queue:größe")
    },
    **{
        f"all of {place}": lambda ops, place=place: (
            finish(  # type: ignore[misc]
                ops.bulk("delete", Selection(place=place))
            ).undo
        )
        for place in ("schedule", "retry", "dead", "unreadable", "queue:default", "queue:größe")
    },
    "some of retry": lambda ops: (
        finish(ops.bulk("delete", Selection(place="retry", only=Filter(text="1")))).undo
    ),
    "some of a queue": lambda ops: (
        finish(
            ops.bulk("delete", Selection(place="queue:default", only=Filter(class_name="Odd")))
        ).undo
    ),
    "few of a queue": lambda ops: (
        finish(ops.bulk("delete", Selection(place="queue:default", only=Filter(text="q0007")))).undo
    ),
    "one of retry": lambda ops: ops.delete(next(ops.inspector.entries("retry"))).undo,
    "one of a queue": lambda ops: (
        ops.delete(next(ops.inspector.jobs("default", only=Filter(jid="q000600")))).undo
    ),
    "the last of a queue": lambda ops: ops.delete([*ops.inspector.jobs("default")][-1]).undo,
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_every_deletion_is_undone(
    operations: Operations, client: Any, act: Callable[[Operations], str]
) -> None:
    """KEY-5: the whole database is as before, apart from the journal."""
    populate(client)
    before = snapshot(client)
    undo_id = act(operations)
    between = snapshot(client)
    assert between != before
    own = [key for key in between if key.startswith(b"jobwire:undo:")]
    assert own
    assert all(86_000 < client.ttl(key) <= 86_400 for key in own)
    record = operations.undo_record(undo_id)
    assert record is not None
    assert (record.person, record.at) == ("ada", NOW)
    undone = operations.undo(undo_id)
    assert (undone.restored, undone.unsure, undone.kept) == (record.size, 0, 0)
    assert snapshot(client) == before
    with pytest.raises(ConfigError, match="there is no deletion"):
        operations.undo(undo_id)


def test_a_deletion_of_nothing_leaves_nothing(operations: Operations, client: Any) -> None:
    client.zadd("retry", {payload("a"): 1})
    client.sadd("queues", "empty")
    entry = next(operations.inspector.entries("retry"))
    client.zadd("dead", {payload("d"): 1})
    client.lpush("queue:q", payload("q"))
    (job,) = operations.inspector.jobs("q")
    client.delete("retry", "queue:q")
    before = snapshot(client, without=())
    assert operations.delete(entry) == operations.delete(job) == undo.Deleted(0, "")
    assert operations.clear("retry") == undo.Deleted(0, "")
    state = finish(operations.bulk("delete", Selection(place="dead", only=Filter(jid="x"))))
    assert (state.total, state.seen, state.matched, state.undo) == (1, 1, 0, "")
    assert finish(operations.bulk("delete", Selection(place="retry"))).total == 0
    after = snapshot(client)
    before.pop(b"jobwire:journal", None)
    assert after == before
    assert [one.act for one in operations.journal()] == ["delete", "delete"]  # begun, ended
    assert operations.clear("queue:empty") == undo.Deleted(0, "")
    assert client.smembers("queues") == set()


def test_only_members_that_were_there_are_kept(server: Server, client: Any) -> None:
    """INSP-4: one was taken, one moved after the page was read; the score is the present one."""
    with Operations(server.url, role="admin") as operations:
        client.zadd("retry", {b"a": 1, b"b": 2.5})
        members = [b"a", b"b", b"gone"]
        client.zadd("retry", {b"b": 7.25})
        step = undo.remove_from_set(
            Keys(), "retry", "retry", "ab" * 8, 0, members, person="", now=NOW
        )
        assert operations.inspector.redis.run(step) == 2
        assert client.zrange("jobwire:undo:" + "ab" * 8 + ":0", 0, -1, withscores=True) == [
            (b"a", 1.0),
            (b"b", 7.25),
        ]
        assert not client.exists("retry")


def test_jobs_that_were_fetched_do_not_return(server: Server, client: Any) -> None:
    """GUAR-2: a job of a page that a worker fetched before the deletion is not put back."""
    with Operations(server.url, role="admin") as operations:
        client.rpush("queue:q", b"c", b"b")  # b runs next; a was fetched
        jobs = [undo.Removal(b"c", b"b"), undo.Removal(b"b", b"a"), undo.Removal(b"a", None)]
        step = undo.remove_from_queue(Keys(), "q", "ab" * 8, 0, jobs, person="", now=NOW)
        assert operations.inspector.redis.run(step) == 2
        assert operations.undo("ab" * 8).restored == 2
        assert client.lrange("queue:q", 0, -1) == [b"c", b"b"]


def test_jobs_return_behind_those_that_ran_before_them(operations: Operations, client: Any) -> None:
    """FETCH-1: pushes and fetches in between change nothing in the order of the others."""
    draw = random.Random(5)
    jobs = [payload(f"j{number:02}") for number in range(40)]
    for _ in range(20):
        client.delete("queue:q")
        client.lpush("queue:q", *jobs)
        chosen = set(draw.sample(range(40), 15))
        text = [jobs[number] for number in chosen]
        entries = [one for one in operations.inspector.jobs("q") if one.payload in text]
        removals = []
        order = client.lrange("queue:q", 0, -1)
        for one in entries:
            index = order.index(one.payload)
            removals.append(
                undo.Removal(one.payload, order[index + 1] if index + 1 < len(order) else None)
            )
        step = undo.remove_from_queue(Keys(), "q", "ab" * 8, 0, removals, person="", now=NOW)
        assert operations.inspector.redis.run(step) == 15
        fetched = {client.rpop("queue:q") for _ in range(draw.randint(0, 25))}
        client.lpush("queue:q", b"new")
        operations.undo("ab" * 8)
        expected = [b"new"] + [one for one in reversed(jobs) if one not in fetched]
        assert client.lrange("queue:q", 0, -1) == expected


def test_a_whole_queue_returns_in_front_of_new_jobs(operations: Operations, client: Any) -> None:
    client.lpush("queue:q", *(b"%04d" % number for number in range(1200)))
    client.sadd("queues", "q")
    deleted = operations.clear("queue:q")
    assert (deleted.count, client.exists("queue:q")) == (1200, 0)
    client.lpush("queue:q", b"new")
    assert operations.undo(deleted.undo).restored == 1200
    assert client.lrange("queue:q", 0, 1) == [b"new", b"1199"]
    assert client.rpop("queue:q") == b"0000"
    assert client.smembers("queues") == {b"q"}
    assert client.ttl("queue:q") == -1


def test_a_whole_set_returns_among_new_entries(operations: Operations, client: Any) -> None:
    fill(client, "dead", 1100)
    deleted = operations.clear("dead")
    client.zadd("dead", {b"new": 1, payload("j000003", retry_count=3): 77})
    undone = operations.undo(deleted.undo)
    assert (undone.restored, undone.kept) == (1099, 1)
    assert client.zcard("dead") == 1101
    assert client.zscore("dead", payload("j000003", retry_count=3)) == 77
    assert client.ttl("dead") == -1


@pytest.mark.parametrize(
    ("place", "act"),
    [("retry", "clear"), ("queue:q", "clear"), ("retry", "delete"), ("queue:q", "delete")],
)
def test_a_key_of_another_type_stays_and_so_does_the_record(
    operations: Operations, client: Any, place: str, act: str
) -> None:
    """INSP-28: nothing is lost, at the deletion or at the undo."""
    if place == "retry":
        client.zadd("retry", {b"a": 1, b"b": 2})
    else:
        client.lpush("queue:q", b"a", b"b")
    if act == "clear":
        undo_id = operations.clear(place).undo
    else:
        undo_id = finish(operations.bulk("delete", Selection(place=place))).undo
    client.set(place, "text")
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        operations.undo(undo_id)
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        operations.clear(place)
    assert client.get(place) == b"text"
    client.delete(place)
    assert operations.undo(undo_id).restored == 2


def test_one_program_undoes_at_a_time(operations: Operations, client: Any) -> None:
    client.zadd("retry", {b"a": 1})
    undo_id = operations.clear("retry").undo
    client.set(f"jobwire:undo:{undo_id}:lock", 1)
    with pytest.raises(ConfigError, match="another program"):
        operations.undo(undo_id)
    client.delete(f"jobwire:undo:{undo_id}:lock")
    assert operations.undo(undo_id).restored == 1


def test_a_deletion_that_ended_halfway_says_so(operations: Operations, client: Any) -> None:
    """The program died before it learned which of the jobs were still there."""
    client.lpush("queue:q", *(payload(f"j{n}") for n in range(600)))
    undo_id = finish(operations.bulk("delete", Selection(place="queue:q"))).undo
    client.hset(f"jobwire:undo:{undo_id}", "settled", 1)
    undone = operations.undo(undo_id)
    assert (undone.restored, undone.unsure) == (600, 100)
    assert client.lrange("queue:q", 0, -1) == [payload(f"j{n}") for n in reversed(range(600))]


@pytest.mark.parametrize("undo_id", ["", "x", "*", "\udcff", "ab:0", "\n"])
def test_an_unknown_id_is_refused(operations: Operations, client: Any, undo_id: str) -> None:
    client.zadd("retry", {b"a": 1})
    operations.clear("retry")
    with pytest.raises(ConfigError, match="there is no deletion"):
        operations.undo(undo_id)
    assert [one.act for one in operations.journal()] == ["clear", "clear"]


def test_a_namespace_is_in_front_of_every_key(server: Server, client: Any) -> None:
    """KEY-4"""
    with Operations(server.url, namespace="{a}:", role="admin") as operations:
        client.zadd("{a}:retry", {b"a": 1, b"b": 2})
        client.lpush("{a}:queue:q", b"a")
        for place in ("retry", "queue:q"):
            before = snapshot(client, without=(b"{a}:journal", b"{a}:jobwire:journal"))
            undo_ids = [finish(operations.bulk("delete", Selection(place=place))).undo]
            assert all(key.startswith(b"{a}:") for key in client.scan_iter())
            operations.undo(undo_ids[0])
            undo_ids.append(operations.clear(place).undo)
            operations.undo(undo_ids[1])
            client.srem("{a}:queues", "q")
            assert snapshot(client, without=(b"{a}:journal", b"{a}:jobwire:journal")) == before
