"""Reads and writes of Sidekiq's own API, which the requirements of an inspector follow."""

from __future__ import annotations

import base64
import json
import time
import zlib
from typing import Any, cast

import pytest
import redis

from tests.interop.commands import commands
from tests.interop.driver import Driver, RubyError
from tests.interop.sidekiq import RealSidekiq

pytestmark = pytest.mark.interop

READS = {
    *("GET", "MGET", "LLEN", "LINDEX", "LRANGE", "ZCARD", "ZSCAN", "ZRANGE", "ZREVRANGE"),
    *("ZRANGEBYSCORE", "SCARD", "SMEMBERS", "SSCAN", "HGET", "HMGET", "HGETALL", "EXISTS"),
    *("SISMEMBER", "MULTI", "EXEC"),
}


def entry(jid: str, **fields: Any) -> str:
    """Return a payload as Ruby spells it, of a job that has failed once."""
    item = {"retry": True, "queue": "default", "args": [], "class": "EchoJob", "jid": jid}
    item |= {"created_at": 1795192067.25, "error_message": "x", "retry_count": 0, **fields}
    return json.dumps(item, separators=(",", ":"), ensure_ascii=False)


def names(seen: list[list[str]]) -> list[str]:
    return [command[0] for command in seen]


def payloads(client: redis.Redis, queue: str = "default") -> list[dict[str, Any]]:
    found = cast("list[bytes]", client.lrange(f"queue:{queue}", 0, -1))
    return [json.loads(payload) for payload in found]


def test_sizes_and_latency(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """INSP-1, INSP-2, INSP-14: queues by their registration, sizes by length, age of the tail."""
    now = time.time()
    client.sadd("queues", "old", "new", "bare", "empty")
    client.lpush("queue:unregistered", entry("a" * 24))
    client.lpush("queue:old", entry("b" * 24, enqueued_at=now - 100.5), entry("c" * 24))
    client.lpush("queue:new", entry("d" * 24, enqueued_at=int((now - 100) * 1000)))
    client.lpush("queue:bare", entry("e" * 24, created_at=now - 50.5))
    client.zadd("retry", {entry("f" * 24): now})
    with commands(client) as seen:
        assert sorted(driver.queues()) == ["bare", "empty", "new", "old"]
        assert [driver.queue_size(name) for name in ("old", "empty", "unregistered")] == [2, 0, 1]
        assert driver.set_size("retry") == 1
        latencies = {name: driver.queue_latency(name) for name in ("old", "new", "bare", "empty")}
        driver.stats()
    assert ["LLEN", "queue:old"] in seen
    assert ["ZCARD", "retry"] in seen
    assert {"SSCAN", "LLEN", "ZCARD"} <= set(names(seen)) <= READS
    assert latencies["old"] == pytest.approx(now - (now - 100.5), abs=10)
    assert latencies["empty"] == 0
    if sidekiq.generation == 8:
        assert latencies["new"] == pytest.approx(100, abs=10)
        assert latencies["bare"] == pytest.approx(50.5, abs=10)
    else:  # they read milliseconds as seconds, and only enqueued_at
        assert latencies["new"] < -1e12
        assert latencies["bare"] == 0


def test_odd_data_is_shown_as_far_as_it_goes(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """INSP-3: Sidekiq shows broken text whole, and odd fields in part."""
    client.sadd("queues", "default")
    client.rpush("queue:default", "not json", "{}", entry("a" * 24, created_at="2026-11-20"))
    broken, empty, texts = driver.queue_list()
    assert (broken.payload, broken.item, broken.args) == (b"not json", {}, ["not json"])
    assert (empty.jid, empty.klass, empty.raised) == (None, None, {})
    assert texts.jid == "a" * 24
    assert set(texts.raised) >= {"created_at"}  # the requirement asks for more
    client.lpush("queue:default", "[1]")
    with pytest.raises(RubyError):
        driver.queue_list()


def test_one_entry_is_removed_by_its_bytes(driver: Driver, client: redis.Redis) -> None:
    """INSP-4: ZREM and LREM 1 of the exact text, which here is not Ruby's spelling."""
    odd = '{ "class":"EchoJob", "args":[], "jid":"' + "a" * 24 + '", "queue":"default" }'
    twin = entry("b" * 24)
    client.zadd("retry", {odd: 5, twin: 5})
    client.sadd("queues", "default")
    client.rpush("queue:default", odd, odd, twin)
    with commands(client) as seen:
        driver.delete("retry", "a" * 24)
        driver.queue_delete("a" * 24)
    assert ["ZREM", "retry", odd] in seen
    assert ["LREM", "queue:default", "1", odd] in seen
    assert client.zrange("retry", 0, -1) == [twin.encode()]
    assert client.lrange("queue:default", 0, -1) == [odd.encode(), twin.encode()]


@pytest.mark.parametrize("action", ["retry", "add_to_queue"])
def test_to_its_queue_now(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, action: str
) -> None:
    """INSP-5, INSP-6: in two steps, by score; only "retry" takes one off retry_count."""
    fresh = entry("b" * 24).replace(',"retry_count":0', "")
    client.zadd("retry", {entry("a" * 24, retry_count=3): 5, fresh: 7})
    with commands(client) as seen:
        getattr(driver, action)("retry", "a" * 24)
    getattr(driver, action)("retry", "b" * 24)
    later, first = payloads(client)
    assert first["retry_count"] == (2 if action == "retry" else 3)
    assert "retry_count" not in later
    kind = int if sidekiq.generation == 8 else float
    assert [type(each["enqueued_at"]) for each in (first, later)] == [kind, kind]
    assert client.smembers("queues") == {b"default"}
    assert client.zcard("retry") == 0
    steps = names(seen)
    assert steps.index("ZREMRANGEBYSCORE") < steps.index("EXEC") < steps.index("LPUSH")


def test_kill(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """INSP-7, INSP-29, PAY-27: with the score now, and trimmed; the count of retries stays."""
    doomed = entry("a" * 24, retry_count=3)
    client.zadd("retry", {doomed: 5})
    client.zadd("dead", {"old": time.time() - 15_552_001})
    with commands(client) as seen:
        driver.kill("retry", "a" * 24)
    ((member, score),) = cast("Any", client.zrange("dead", 0, -1, withscores=True))
    assert member.decode() == doomed
    assert score == pytest.approx(time.time(), abs=10)
    assert ["ZREMRANGEBYRANK", "dead", "0", "-10000"] in seen
    assert "ZREMRANGEBYSCORE" in names(seen)


def test_reschedule(driver: Driver, client: redis.Redis) -> None:
    """INSP-8: a ZINCRBY of the text encoded again, so other spellings get a second member."""
    odd = '{"class":"EchoJob", "args":[],"jid":"' + "b" * 24 + '"}'
    client.zadd("schedule", {entry("a" * 24): 4e9, odd: 4e9 + 1})
    with commands(client) as seen:
        driver.reschedule("schedule", "a" * 24, 4e9 + 600)
        driver.reschedule("schedule", "b" * 24, 4e9 + 601)
    assert names(seen).count("ZINCRBY") == 2
    scores = {
        member.decode(): score
        for member, score in cast("Any", client.zrange("schedule", 0, -1, withscores=True))
    }
    assert scores[entry("a" * 24)] == pytest.approx(4e9 + 600)
    assert scores[odd] == 4e9 + 1  # not moved
    assert sorted(scores.values())[0] == pytest.approx(600)  # the new member is due since 1970


def test_clearing(driver: Driver, client: redis.Redis) -> None:
    """INSP-9: list and registration in one transaction; a set in one command."""
    driver.push({"class": "EchoJob", "args": []})
    client.zadd("dead", {entry("a" * 24): 5})
    with commands(client) as seen:
        driver.queue_clear()
        driver.set_call("dead", "clear")
    together = [command for command in seen if command[0] != "SSCAN"]
    assert together[:4] == [
        ["MULTI"],
        ["UNLINK", "queue:default"],
        ["SREM", "queues", "default"],
        ["EXEC"],
    ]
    assert ["UNLINK", "dead"] in together
    assert client.exists("queues", "queue:default", "dead") == 0


def test_finding_by_jid(driver: Driver, client: redis.Redis) -> None:
    """INSP-10, INSP-14: a ZSCAN for the text, then an exact comparison."""
    client.zadd("retry", {entry(f"{number:024x}"): number for number in range(300)})
    quoting = entry("b" * 24, args=["a" * 24])
    client.zadd("retry", {entry("a" * 24): 1, quoting: 2})
    find = "Sidekiq::RetrySet.new.find_job(with)&.jid"
    with commands(client) as seen:
        assert driver.eval(find, "a" * 24) == "a" * 24
        assert driver.eval(find, "a" * 23) is None
    client.zadd("retry", {entry("x[1]y"): 3})
    assert driver.eval(find, "x[1]y") is None  # the jid exists, but is read as a pattern
    first = seen[names(seen).index("ZSCAN")]
    assert [first[3].upper(), first[4]] == ["MATCH", f"*{'a' * 24}*"]
    assert set(names(seen)) <= {"ZCARD", "ZSCAN"}


INFO = {"hostname": "h", "pid": 1, "started_at": 1795192067.25, "queues": ["default"]}


def test_processes(driver: Driver, client: redis.Redis) -> None:
    """INSP-11: members with a hash, with any identity; missing fields have defaults.

    INSP-14: a look writes the lock and prunes names without a hash (BEAT-8), nothing else.
    """
    client.sadd("processes", "no colons", "a:b:c:d:e", "gone:1:0123456789ab")
    for identity in ("no colons", "a:b:c:d:e"):
        client.hset(identity, "info", json.dumps({**INFO, "identity": identity}))
    client.hset("a:b:c:d:e", mapping={"busy": 2, "beat": 1795192067.5, "quiet": "true"})
    fields = "p.identity, p['busy'], p['rss'], p.stopping?, p.tag.to_s"
    look = f"Sidekiq::ProcessSet.new.map {{ |p| [{fields}] }}"
    with commands(client) as seen:
        found = driver.eval(look)
    assert sorted(found) == [["a:b:c:d:e", 2, 0, True, ""], ["no colons", 0, 0, False, ""]]
    assert set(names(seen)) - READS <= {"SET", "SREM"}
    assert client.smembers("processes") == {b"no colons", b"a:b:c:d:e"}


@pytest.mark.parametrize("form", ["text", "object"])
def test_work_records(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, form: str) -> None:
    """INSP-12: the payload as text; the object of 6.0 is also shown."""
    client.sadd("processes", "a:1:0123456789ab")
    identity = {**INFO, "identity": "a:1:0123456789ab"}
    client.hset("a:1:0123456789ab", mapping={"info": json.dumps(identity), "busy": 1})
    payload: Any = entry("a" * 24)
    if form == "object":
        payload = json.loads(payload)
    record = json.dumps({"queue": "default", "payload": payload, "run_at": 1795192067})
    key = "workers" if sidekiq.generation == 6 else "work"
    client.hset(f"a:1:0123456789ab:{key}", "tid1", record)
    (work,) = driver.works()
    assert (work.tid, work.queue, work.run_at) == ("tid1", "default", 1795192067)
    assert work.jid == "a" * 24


def test_commands_to_a_process(driver: Driver, client: redis.Redis) -> None:
    """INSP-13: one transaction each; the receiver takes the oldest."""
    identity = "a:1:0123456789ab"
    client.sadd("processes", identity)
    client.hset(identity, "info", json.dumps({**INFO, "identity": identity}))
    with commands(client) as seen:
        for action in ("quiet!", "stop!", "dump_threads"):
            driver.eval(
                f"Sidekiq::ProcessSet.new(false).first.{action}",
            )
    writes = [command for command in seen if command[0] not in READS - {"MULTI", "EXEC"}]
    key = f"{identity}-signals"
    assert writes == [
        step
        for name in ("TSTP", "TERM", "TTIN")
        for step in (["MULTI"], ["LPUSH", key, name], ["EXPIRE", key, "60"], ["EXEC"])
    ]
    assert client.lrange(key, 0, -1) == [b"TTIN", b"TERM", b"TSTP"]


LINES = ["a.rb:1", "é.rb:2"]
PACKED = base64.encodebytes(zlib.compress(json.dumps(LINES).encode())).decode()


@pytest.mark.parametrize(
    ("stored", "readers"),
    [
        (PACKED.replace("\n", ""), (6, 7, 8)),
        (PACKED[:20] + "\n" + PACKED[20:], (6, 7, 8)),
        (LINES, (6,)),
        ("!!!", ()),
    ],
)
def test_backtraces(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, stored: Any, readers: tuple[int, ...]
) -> None:
    """PAY-15: the forms that each Sidekiq reads; the requirement asks readers for all forms."""
    client.zadd("retry", {entry("a" * 24, error_backtrace=stored): 5})
    (record,) = driver.set_list("retry")
    if sidekiq.generation in readers:
        assert record.error_backtrace == LINES
    else:
        assert record.error_backtrace in (None, [], [stored])


def test_both_wrappers_of_active_job(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """PAY-16: the wrapper names that each generation unwraps."""
    inner = {"job_class": "WelcomeJob", "arguments": [42], "job_id": "x", "queue_name": "default"}
    old, new = "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper", "Sidekiq::ActiveJob::Wrapper"
    client.sadd("queues", "default")
    for wrapper in (new, old):
        payload = {"class": wrapper, "wrapped": "WelcomeJob", "args": [inner], "queue": "default"}
        client.lpush("queue:default", json.dumps(payload))
    shown = [record.display_class for record in driver.queue_list()]
    assert shown == ["WelcomeJob", "WelcomeJob" if sidekiq.generation == 8 else new]
