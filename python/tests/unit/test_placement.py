"""The shard of a job, without a server."""

from __future__ import annotations

import hashlib
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from jobwire import App
from jobwire.application.producer import new_jids
from jobwire.application.shards import Shards
from jobwire.connection.resources import script
from jobwire.errors import ConfigError, InvalidJob
from jobwire.protocol.keys import Keys
from jobwire.protocol.limits import Limit
from jobwire.protocol.normalize import ReadyPayload, build, finalize
from jobwire.protocol.payload import encode
from jobwire.protocol.placement import (
    ShardState,
    by_turn,
    check_placement,
    home,
    keys_of,
    newest,
    ranking,
    read_states,
    rotations,
    turn,
    write_states,
)
from jobwire.protocol.unique import Unique
from jobwire.protocol.wire import Local, Message, Op, command, dialogue


def job(**options: Any) -> ReadyPayload:
    item = build("Note", [1, 2], options, jid="0" * 24, now=1.0, generation=8, strict="raise")
    return finalize(item, now=1.0, generation=8)


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_jobs_are_spread_evenly(count: int) -> None:
    shards = [f"shard-{number}" for number in range(1, count + 1)]
    numbers = [hashlib.sha256(b"%d" % number).hexdigest()[:24] for number in range(100_000)]
    placed = Counter(ranking(jid, shards)[0] for jid in numbers)
    orders = rotations(shards)
    turns = Counter(turn(jid, orders)[0] for jid in numbers)
    even = 100_000 / count
    for counted in (placed, turns):
        assert all(abs(counted[shard] - even) < 0.02 * even for shard in shards)


@pytest.mark.parametrize("odd", [[], ["x"], ["a" * 12, "b" * 36], ["é" * 24], [" " * 24]])
def test_jobs_are_parted_by_their_turn(odd: list[str]) -> None:
    """All at once, as one by one; also with ids that people gave."""
    orders = rotations(["a", "b", "c"])
    jobs = [ReadyPayload(jid, "default", None, b"") for jid in [*new_jids(300), *odd]]
    parts = [(list(order), part) for order, part in by_turn(jobs, orders)]
    assert len(parts) == len({tuple(order) for order, _ in parts})
    assert sorted(job.jid for _, part in parts for job in part) == sorted(job.jid for job in jobs)
    for order, part in parts:
        assert all(list(turn(job.jid, orders)) == order for job in part)
        assert part == [job for job in jobs if job in part]
    assert [part for _, part in by_turn(jobs[:1], orders)] == [jobs[:1]]
    assert [*by_turn(jobs, rotations(["a"]))] == [(("a",), jobs)]
    assert not [*by_turn([], rotations(["a"])), *by_turn([], orders)]


def test_a_push_is_one_message_of_one_dialogue() -> None:
    """Nothing is asked before, and no dialogue runs inside the one of the client."""
    app = App(shards=["redis://a", "redis://b", "redis://c"], generation=8)
    servers = [app.client_of(name).redis for name in app.shards]
    producer = app.client._producer
    assert app._shards.is_due()  # as after a push

    def messages(op: Op[Any]) -> list[Message]:
        sent: list[Message] = []
        replies: Any = None
        talk = dialogue(op, script)
        with suppress(StopIteration):
            while True:
                message = talk.send(replies)
                if isinstance(message, Local):  # a pause of a bulk push on a slow machine
                    replies = message.call()
                    continue
                sent.append(message)
                queued = [b"QUEUED"] * (len(message.commands) - 2)
                replies = [b"OK", *queued, [1] * len(queued)]
        return sent

    assert isinstance(next(dialogue(producer.push("Note", [1], {}), script)), Message)
    (one,) = messages(producer.push("Note", [1], {}))
    assert [words[0] for words in one.commands] == ["MULTI", "SADD", "LPUSH", "EXEC"]
    assert one.server in servers
    many = messages(producer.push_bulk("Note", [[1]] * 900, {}))
    assert sorted(map(id, servers)) == sorted(id(each.server) for each in many)


def test_another_shard_moves_only_the_keys_that_it_gets() -> None:
    for key in new_jids(2000):
        before, after = ranking(key, ["a", "b", "c"]), ranking(key, ["c", "d", "b", "a"])
        assert [shard for shard in after if shard != "d"] == before


def test_the_order_is_one_for_all_versions() -> None:
    assert ranking("unique 1", ["a", "b", "c"]) == ["b", "a", "c"]
    assert ranking("ключ \ud800", ["a", "b"]) == ranking("ключ \ud800", ["b", "a"])


def test_plain_jobs() -> None:
    assert home(job(), "spread") is None
    assert home(job(queue="mail"), "queue") == "queue mail"
    # A member of an argument is not a field.
    text = encode({"args": [{"jw_limit": 1}], "class": "Note", "queue": "default"})
    assert home(ReadyPayload("1", "default", None, text), "spread") is None


def test_keys() -> None:
    """X-LIMIT-1, X-UNIQ-1: a job with a key has a home."""
    limited = job(limit=Limit("api", at_once=1, by=[1]))
    assert home(limited, "spread") == home(limited, "queue") == "limit api:[2]"
    unique = job(unique=Unique(60), queue="mail")
    assert unique.lock is not None
    assert home(unique, "spread") == f"unique {unique.lock.digest}"
    assert home(unique, "queue") == "queue mail"
    with pytest.raises(InvalidJob, match="several keys") as caught:
        home(job(unique=60, limit=Limit("api", at_once=1)), "spread")
    assert "app.via(SHARD)" in str(caught.value)


def test_keys_of_carried_jobs() -> None:
    """X-FLOW-1, X-FLOW-8: those of a chain and of a group, at any depth."""
    limit = {"name": "api", "at_once": 1}
    member = {"class": "A", "jw_limit": limit}
    step = {"class": "B", "jw_group": [member, {"class": "C"}, "not a job"]}
    fields = {"class": "D", "jw_next": [{"class": "E"}, step], "jw_group": "nothing"}
    assert [*keys_of(fields)] == ["limit api"]
    text = encode(fields)
    assert home(ReadyPayload("1", "default", None, text), "spread") == "limit api"
    assert job().plain
    assert home(job().with_text(text), "spread") == "limit api"


def test_rules() -> None:
    assert check_placement("queue") == "queue"
    with pytest.raises(ConfigError, match="'random' is not one of 'spread', 'queue'"):
        check_placement("random")


def test_states_are_merged_and_followed() -> None:
    """The highest epoch of each name wins, and an unreadable state counts as absent."""
    older = {"a": ShardState(1, "used"), "b": ShardState(3, "draining")}
    newer = {"a": ShardState(2, "removed"), "b": ShardState(2, "used")}
    merged = {"a": ShardState(2, "removed"), "b": ShardState(3, "draining")}
    assert newest([older, newer]) == newest([newer, older]) == merged
    write = next(write_states(Keys("app:"), older))
    assert write == command("HSET", "app:jobwire:shards", "a", "1 used", "b", "3 draining")
    read = read_states(Keys("app:"))
    assert next(read) == command("HGETALL", "app:jobwire:shards")
    with pytest.raises(StopIteration) as done:
        read.send([b"a", b"1 used", b"b", b"3 draining", b"c", b"x", b"d", b""])
    assert done.value.value == older


def test_a_shard_that_is_not_used_gets_no_job() -> None:
    shards = Shards({name: f"redis://{name}" for name in "abc"}, "spread", "")
    texts = [f"{number}{end}" for number in range(50) for end in ("", "-x")]

    def chosen() -> set[str | None]:
        return {choose(text) for text in texts for choose in (shards.of, shards.choose)}

    assert chosen() == {"a", "b", "c"}
    shards.learn({"a": ShardState(1, "used"), "b": ShardState(1, "draining")})  # c is new
    assert chosen() == {"a"}
    assert (shards.used, shards.served, shards.epoch) == (("a",), ("a", "b", "c"), 1)
    shards.learn({"a": ShardState(2, "removed"), "b": ShardState(0, "used")})
    assert (shards.used, shards.served, shards.epoch) == (("a", "b", "c"), ("b", "c"), 2)
