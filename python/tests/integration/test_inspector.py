"""The inspector, sync and asyncio, on real servers."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Literal, cast

import pytest

from harness.servers import Server
from jobwire import Client
from jobwire.connection.sync import SyncRedis
from jobwire.errors import ConfigError, MalformedPayload, RedisRefused
from jobwire.inspect import AsyncInspector, Filter, Inspector, Swept, sets
from jobwire.protocol import reliable
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.protocol.metrics import Metrics
from jobwire.protocol.wire import Batch, Local, Script, once
from tests.interop.commands import commands

NOW = 1_795_192_067.25
IDENTITY = "web:1:0123456789ab"


class Blocking:
    """An `AsyncInspector` with the blocking methods of an `Inspector`."""

    def __init__(self, url: str, **settings: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._inspector = AsyncInspector(url, **settings)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inspector, name)

        def call(*args: Any, **named: Any) -> Any:
            found = method(*args, **named)
            if hasattr(found, "__anext__"):
                return self._each(found)
            return self._loop.run_until_complete(found)

        return call

    def _each(self, found: Any) -> Iterator[Any]:
        while True:
            try:
                yield self._loop.run_until_complete(found.__anext__())
            except StopAsyncIteration:
                return

    def end(self) -> None:
        self._loop.run_until_complete(self._inspector.close())
        self._loop.close()


@pytest.fixture(params=["sync", "async"])
def inspector(request: pytest.FixtureRequest, server: Server) -> Iterator[Any]:
    if request.param == "sync":
        with Inspector(server.url, clock=lambda: NOW) as made:
            yield made
    else:
        face = Blocking(server.url, clock=lambda: NOW)
        yield face
        face.end()


@pytest.fixture
def client(server: Server) -> Any:
    return server.client()


def payload(jid: str, **fields: Any) -> bytes:
    made = {"class": "A", "args": [], "jid": jid, "queue": "default", "created_at": 5} | fields
    return json.dumps(made, separators=(",", ":")).encode()


def fill(client: Any, name: str, count: int, score: Callable[[int], float] = float) -> None:
    client.zadd(name, {payload(f"j{n:06}", retry_count=3): score(n) for n in range(count)})


# -- reading


def test_totals(inspector: Any, client: Any) -> None:
    """INSP-1, INSP-20, STAT-1, STAT-2: from the registrations and counters, from no other keys."""
    client.sadd("queues", "a", "b", "empty")
    client.lpush("queue:a", "1", "2", "3")
    client.lpush("queue:b", payload("x", enqueued_at=int((NOW - 90) * 1000)))
    client.lpush("queue:default", payload("y", enqueued_at=NOW - 7))
    client.set("stat:processed", 10)
    client.set("stat:failed", 4)
    client.set("stat:processed:2026-11-20", 6)
    client.set("stat:failed:2026-11-19", 2)
    for name, count in (("schedule", 1), ("retry", 2), ("dead", 3), ("jobwire:unreadable", 4)):
        fill(client, name, count)
    client.sadd("processes", IDENTITY, "gone")
    client.hset(IDENTITY, mapping={"info": "{}", "busy": 5})
    found = inspector.stats()
    assert (found.processed, found.failed, found.busy, found.processes) == (10, 4, 5, 2)
    assert (found.scheduled, found.retries, found.dead, found.unreadable) == (1, 2, 3, 4)
    assert (found.enqueued, found.queues) == (4, {"a": 3, "b": 1, "empty": 0})
    assert found.default_latency == 7
    assert found.problems == ()
    names = [(each.name, each.size, each.latency, each.paused) for each in inspector.queues()]
    assert names == [("a", 3, 0, False), ("b", 1, 90, False), ("empty", 0, 0, False)]
    days = [(day.date, day.processed, day.failed) for day in inspector.history(2)]
    assert days == [("2026-11-20", 6, 0), ("2026-11-19", 0, 2)]
    for too_many in (0, 1826):
        with pytest.raises(ConfigError, match="1825"):
            inspector.history(too_many)


def test_reading_needs_no_right_to_write(server: Server, client: Any) -> None:
    """INSP-14: every method that only reads, as a user with permission to read only."""
    client.execute_command("ACL", "SETUSER", "reader", "on", ">x", "~*", "+@read", "+@connection")
    client.sadd("queues", "default")
    client.sadd("processes", IDENTITY)
    client.sadd("jobwire:owners", IDENTITY)
    client.hset(f"jobwire:private:{IDENTITY}", "1:default", payload("p"))
    client.hset(IDENTITY, "info", "{}")
    client.hset("it-x", "ex", 1)
    client.lpush("queue:default", payload("q"))
    fill(client, "retry", 3)
    url = server.url.replace("redis://", "redis://reader:x@")
    before = client.info("persistence")["rdb_changes_since_last_save"]
    with Inspector(url) as reader:
        assert len(list(reader.entries("retry"))) == 3
        assert len(list(reader.jobs("default"))) == 1
        assert len(list(reader.scan("retry", "j"))) == 3
        assert reader.find("retry", "j000001")
        assert reader.find_job("default", "q")
        assert reader.fetch("retry", 1, 2)
        assert [each.jobs[0][0] for each in reader.holdings()] == ["default"]
        assert list(reader.all_iterations()) == reader.iterations(["x"])
        for look in ("stats", "history", "queues", "processes", "works", "recoveries", "activity"):
            assert getattr(reader, look)() is not None
        assert reader.job_activity("A").jobs
    assert client.info("persistence")["rdb_changes_since_last_save"] == before


@pytest.mark.parametrize("missing", ["zmscore", "zrank", "zrevrank"])
def test_a_walk_without_a_permission_ends(server: Server, client: Any, missing: str) -> None:
    """A walk that cannot find its place says so, and does not show the same page for ever."""
    rules = ("+@read", "+@connection", f"-{missing}")
    client.execute_command("ACL", "SETUSER", "reader", "on", ">x", "~*", *rules)
    fill(client, "retry", 250)
    rising = missing == "zrank"
    with Inspector(server.url.replace("redis://", "redis://reader:x@")) as reader:
        shown = reader.entries("retry", rising=rising)
        with pytest.raises(RedisRefused, match=missing):
            assert [next(shown) for _ in range(101)] == []


def test_looking_through_a_set_while_removing_from_it(inspector: Any, client: Any) -> None:
    """INSP-4: every entry is shown once, also if earlier entries are removed meanwhile."""
    for score in (float, lambda n: 7.0, lambda n: float("inf")):
        client.delete("retry", "dead", "queue:default")
        fill(client, "retry", 350, score)
        seen = []
        for number, entry in enumerate(inspector.entries("retry")):
            seen.append(entry.jid)
            if number % 3 == 0:
                assert inspector.delete(entry)
            elif number % 3 == 1:
                assert inspector.kill(entry)
        assert len(seen) == len(set(seen)) == 350
        assert seen == sorted(seen, reverse=True)
        assert (client.zcard("retry"), client.zcard("dead")) == (116, 117)


def test_looking_through_a_set_that_others_empty(inspector: Any, client: Any) -> None:
    """INSP-3: no entry that stays is left out when whole pages are removed."""
    fill(client, "schedule", 500)
    seen = []
    for number, entry in enumerate(inspector.entries("schedule")):
        seen.append(entry.jid)
        if number == 150:
            client.zremrangebyscore("schedule", 300, 500)
    assert {f"j{n:06}" for n in range(300)} <= set(seen)
    assert len(seen) == len(set(seen))


def test_looking_through_a_set_whose_entries_move(inspector: Any, client: Any) -> None:
    """INSP-8: an entry that was rescheduled meanwhile does not mark the position."""
    fill(client, "schedule", 250)
    seen = []
    for number, entry in enumerate(inspector.entries("schedule")):
        seen.append(entry.jid)
        if number % 100 == 99:
            client.zadd("schedule", {entry.payload: -1})
    assert {f"j{n:06}" for n in range(250)} == set(seen)


def test_looking_through_a_queue(inspector: Any, client: Any) -> None:
    """INSP-3: newest first; deletions meanwhile move the other entries, and none is missed."""
    client.lpush("queue:default", *(payload(f"j{n:06}") for n in range(350)))
    seen = []
    for number, entry in enumerate(inspector.jobs("default")):
        seen.append(entry.jid)
        assert entry.queue == "default"
        if number % 2:
            assert inspector.delete(entry)
    assert seen == [f"j{n:06}" for n in reversed(range(350))]
    assert client.llen("queue:default") == 175
    seen = []
    for number, entry in enumerate(inspector.jobs("default")):
        seen.append(entry.jid)
        if number == 10:
            client.lpush("queue:default", payload("new"))
            client.rpop("queue:default", 5)
    assert set(seen) >= {f"j{n:06}" for n in range(349, 10, -2)}


def test_finding(inspector: Any, client: Any) -> None:
    """INSP-10, INSP-17: the exact text of the field, with any characters."""
    odd = "x[1]*?\\y"
    client.zadd("retry", {payload(odd): 1, payload("b", args=[odd]): 2, payload("x1zy"): 3})
    client.lpush("queue:q", payload("b", args=[odd]), payload(odd), b"{")
    assert inspector.find("retry", odd).jid == odd
    assert inspector.find("retry", "x1") is None
    assert inspector.find("dead", odd) is None
    assert inspector.find_job("q", odd).payload == payload(odd)
    assert inspector.find_job("q", "nobody") is None
    assert {
        each.jid for each in inspector.scan("retry", '"args":[]')
    } == set()  # a class of letters
    assert {each.jid for each in inspector.scan("retry", "x1")} == {"x1zy"}
    assert {each.jid for each in inspector.scan("retry", '*"jid":"b"*')} == {"b"}
    assert [each.score for each in inspector.fetch("retry", 2, 3)] == [2, 3]
    assert [each.jid for each in inspector.fetch("retry", 2, 3, jid="b")] == ["b"]
    assert inspector.fetch("retry", 4) == []
    with pytest.raises(ConfigError, match="is not one of schedule, retry, dead, unreadable"):
        inspector.find("retries", "b")


# -- changing


@pytest.mark.parametrize(("action", "count"), [("retry", 2), ("add_to_queue", 3)])
def test_pushing_one(inspector: Any, client: Any, action: str, count: int) -> None:
    """Queue, registration, enqueued_at, retry_count; other bytes as they were.

    INSP-5, INSP-6, INSP-21.
    """
    text = (
        b'{ "class":"A","big":123456789012345678901234567890, "jid":"j","args":[1.50],"queue":"low"'
    )
    text += b',"retry_count":3,"created_at":5,"retry":true}'
    client.zadd("retry", {text: 9e9})
    entry = inspector.find("retry", "j")
    assert getattr(inspector, action)(entry)
    (pushed,) = client.lrange("queue:low", 0, -1)
    assert pushed == (
        b'{"class":"A","big":123456789012345678901234567890,"jid":"j","args":[1.50],"queue":"low",'
        b'"retry_count":%d,"created_at":5,"retry":true,"enqueued_at":1795192067250}' % count
    )
    assert client.smembers("queues") == {b"low"}
    assert client.zcard("retry") == 0
    assert not getattr(inspector, action)(entry)  # the entry is gone: nothing is pushed again
    assert client.llen("queue:low") == 1


@pytest.mark.parametrize(("generation", "stamp"), [(7, 1795192067.25), (8, 1795192067250)])
def test_the_form_of_times_can_be_set(
    server: Server, generation: Literal[7, 8], stamp: float
) -> None:
    """GEN-1, GEN-2: without a look at the processes, for one entry and for all."""
    with (
        server.client() as client,
        Inspector(server.url, generation=generation, clock=lambda: 1795192067.25) as inspector,
    ):
        client.zadd("retry", {payload("a"): 1, payload("b"): 2})
        entry = inspector.find("retry", "a")
        assert entry is not None
        assert inspector.retry(entry)
        assert inspector.sweep("retry", "retry").done == 1
        texts = cast("list[bytes]", client.lrange("queue:default", 0, -1))
        pushed = [json.loads(text) for text in texts]
    assert [(job["enqueued_at"], type(job["enqueued_at"])) for job in pushed] == [
        (stamp, type(stamp))
    ] * 2


def test_what_cannot_be_pushed_stays(inspector: Any, client: Any) -> None:
    """INSP-23: the entry stays, and the error names the reason."""
    client.set("queue:bad", "no list")
    client.zadd("retry", {payload("a", queue="bad"): 1, b"{broken": 2, payload("c", queue=7): 3})
    for entry in list(inspector.entries("retry")):
        with pytest.raises((RedisRefused, MalformedPayload)):
            inspector.retry(entry)
    assert client.zcard("retry") == 3
    swept = inspector.sweep("retry", "retry")
    assert (swept.seen, swept.done, swept.left) == (3, 0, 3)
    assert client.zcard("retry") == 3
    client.lpush("queue:q", payload("q"))
    (job,) = inspector.jobs("q")
    with pytest.raises(ConfigError, match="queue:q"):
        inspector.kill(job)


def test_killing_one(inspector: Any, client: Any) -> None:
    """Exact bytes, score now, trimmed; JSON but no object is `unreadable`.

    INSP-7, INSP-29, INSP-16, PAY-27.
    """
    odd = b'{"jid" : "j", "class":"A","args":[]}'
    client.zadd("dead", {"ancient": NOW - 15_552_000, "old": NOW - 15_551_999})
    client.zadd("schedule", {odd: 9e9, b"[1]": 9e9, b"{": 9e9})
    for entry in list(inspector.entries("schedule")):
        assert inspector.kill(entry)
        assert not inspector.kill(entry)
    dead = dict(client.zrange("dead", 0, -1, withscores=True))
    assert dead == {b"old": NOW - 15_551_999, odd: NOW, b"{": NOW}
    assert client.zrange("jobwire:unreadable", 0, -1, withscores=True) == [(b"[1]", NOW)]


def test_rescheduling_one(inspector: Any, client: Any) -> None:
    """INSP-8, INSP-30: only the score of the exact bytes changes, and nothing is added."""
    client.zadd("schedule", {payload("a"): 9e9})
    (entry,) = inspector.entries("schedule")
    assert inspector.reschedule(entry, 9.5e9)
    assert inspector.reschedule(entry, 9.5e9)  # no change, but the entry exists
    assert inspector.reschedule(entry, timedelta(hours=1))
    assert client.zrange("schedule", 0, -1, withscores=True) == [(payload("a"), NOW + 3600)]
    client.delete("schedule")
    assert not inspector.reschedule(entry, 9.5e9)
    assert client.exists("schedule") == 0


def test_clearing(inspector: Any, client: Any) -> None:
    """INSP-9, INSP-24: list and registration in one transaction; a set in one command."""
    client.sadd("queues", "a", "b")
    client.lpush("queue:a", "1", "2")
    fill(client, "dead", 3)
    with commands(client) as seen:
        assert inspector.clear_queue("a") == 2
        assert inspector.clear("dead") == 3
    assert [" ".join(each) for each in seen] == [
        *("MULTI", "LLEN queue:a", "UNLINK queue:a", "SREM queues a", "EXEC"),
        *("MULTI", "ZCARD dead", "UNLINK dead", "EXEC"),
    ]
    assert client.keys("*") == [b"queues"]


def test_pausing(inspector: Any, client: Any) -> None:
    """REL-9: bare names in a set."""
    client.sadd("queues", "a")
    assert inspector.pause("a")
    assert not inspector.pause("a")
    assert client.smembers("jobwire:paused") == {b"a"}
    assert inspector.queue("a").paused
    assert inspector.unpause("a")
    assert not inspector.unpause("a")
    assert not inspector.queues()[0].paused


@pytest.mark.parametrize("score", [float, lambda n: 7.0], ids=["spread", "same"])
@pytest.mark.parametrize("action", ["retry", "add_to_queue", "kill", "delete"])
def test_changing_those_that_a_filter_means(
    inspector: Any, client: Any, action: str, score: Callable[[int], float]
) -> None:
    """INSP-4 to INSP-7, INSP-15: only entries that match, in pages; others keep their place."""
    members = {
        payload(f"j{n:06}", **({"tags": ["x"]} if n % 3 == 0 else {})): score(n) for n in range(700)
    }
    client.zadd("schedule", members)
    steps: list[Swept] = []
    swept = inspector.sweep("schedule", action, only=Filter(tag="x"), progress=steps.append)
    assert (swept.total, swept.seen, swept.matched, swept.done, swept.left) == (
        700,
        700,
        234,
        234,
        0,
    )
    assert [step.seen for step in steps] == [100, 200, 300, 400, 500, 600, 700]
    rest = dict(client.zrange("schedule", 0, -1, withscores=True))
    assert rest == {text: at for text, at in members.items() if b"tags" not in text}
    where = {"kill": client.zcard("dead"), "delete": 234}
    assert where.get(action, client.llen("queue:default")) == 234


def test_whole_pages_go_behind_pages_that_stay(inspector: Any, client: Any) -> None:
    """INSP-4: with one score for all entries, where only the bytes give an order."""
    client.zadd("schedule", {payload(f"j{n:06}", args=[n >= 150]): 7 for n in range(650)})
    swept = inspector.sweep("schedule", "delete", only=Filter(text="[true]"))
    assert (swept.seen, swept.done) == (650, 500)
    assert client.zcard("schedule") == 150


def test_deleting_from_a_queue_by_filter(inspector: Any, client: Any) -> None:
    """INSP-4: LREM of each text."""
    client.lpush("queue:q", *(payload(f"j{n:03}", args=[n % 2]) for n in range(250)))
    swept = inspector.delete_jobs("q", only=Filter(text='"args":[1]'))
    assert (swept.total, swept.seen, swept.done) == (250, 250, 125)
    assert client.llen("queue:q") == 125
    assert not any(b'"args":[1]' in text for text in client.lrange("queue:q", 0, -1))


def test_what_is_dead_is_not_killed_again(inspector: Any) -> None:
    """INSP-7: otherwise the loop would never end."""
    for name in ("dead", "unreadable"):
        with pytest.raises(ConfigError, match="already dead"):
            inspector.sweep(name, "kill")


@pytest.mark.thorough
def test_retrying_very_many_takes_little_at_a_time(server: Server, client: Any) -> None:
    """100,000 entries in pages of 100: no reply and no call is longer than that.

    INSP-5, INSP-26.
    """
    pipe = client.pipeline(transaction=False)
    for start in range(0, 100_000, 10_000):
        numbers = range(start, start + 10_000)
        pipe.zadd("retry", {payload(f"j{n:06}", retry_count=0): n for n in numbers})
    pipe.execute()
    shell = SyncRedis(server.url)
    op = sets.sweep(Keys(), "retry", "retry", dead_limits=DeadSetLimits(NOW), only=Filter())
    longest_call = longest_reply = scripts = 0
    reply: Any = None
    try:
        while True:
            step = op.send(reply)
            reply = shell.run(once(step))
            assert not isinstance(step, Local)
            each = list(step.steps) if isinstance(step, Batch) else [step]
            scripts += sum(isinstance(one, Script) for one in each)
            longest_call = max(longest_call, *(len(one.args) for one in each))
            replies = reply if isinstance(reply, list) else [reply]
            longest_reply = max(
                longest_reply, *(len(one) if isinstance(one, list) else 1 for one in replies), 0
            )
    except StopIteration as done:
        swept = done.value
    shell.close()
    assert swept.done == swept.total == 100_000
    assert (client.zcard("retry"), client.llen("queue:default")) == (0, 100_000)
    assert scripts == 1_000
    assert longest_call == 400  # a page of fours
    assert longest_reply == 200  # a page of pairs
    # The job that was due first runs first.
    assert json.loads(client.lindex("queue:default", -1))["jid"] == "j000000"


def test_a_sweep_ends_though_jobs_come_back(inspector: Any, client: Any) -> None:
    """INSP-27: a worker that fails at once adds the jobs again behind."""
    fill(client, "retry", 250)

    def come_back(swept: Swept) -> None:
        fill(client, "retry", 250, lambda n: 1e9 + n)

    assert inspector.sweep("retry", "retry", progress=come_back).seen == 250


# -- processes


def test_processes(inspector: Any, client: Any) -> None:
    """From the hash, with defaults; BEAT-3, BEAT-4: hashes of any writer.

    INSP-11, INSP-25, BEAT-19.
    """
    capsules = {"default": {"concurrency": 3, "mode": "weighted", "weights": {"a": 2, "b": 1}}}
    info = {"hostname": "h", "pid": 7, "started_at": 5.5, "queues": ["x"], "capsules": capsules}
    info |= {"labels": ["l"], "tag": "t", "version": "8.1.7", "embedded": True, "concurrency": 9}
    client.sadd("processes", "new:1", "old", "gone", "odd:::")
    beat = {"busy": 2, "beat": "9.25", "quiet": "true", "rss": 1000, "rtt_us": 300}
    client.hset("new:1", mapping={"info": json.dumps(info), "concurrency": 3, **beat})
    client.hset("old", "info", json.dumps({"concurrency": 10, "queues": ["q"]}))
    client.hset("odd:::", "info", "{")
    new, odd, old = sorted(inspector.processes(), key=lambda each: each.identity != "new:1")
    assert (new.concurrency, new.queues, new.busy, new.quiet) == (3, ["a", "b"], 2, True)
    assert (new.pid, new.started_at, new.beat, new.rss, new.rtt_us) == (7, 5.5, 9.25, 1000, 300)
    assert (new.tag, new.labels, new.version, new.embedded) == ("t", ["l"], "8.1.7", True)
    assert (new.capsules["default"].mode, new.capsules["default"].concurrency) == ("weighted", 3)
    assert (old.concurrency, old.queues, old.quiet, old.version) == (10, ["q"], False, "")
    assert (odd.identity, odd.problem, old.problem) == ("odd:::", "info is not a JSON object", None)


def test_jobs_in_execution(inspector: Any, client: Any) -> None:
    """INSP-12, INSP-18, INSP-31: both keys, each job once, text or object; the oldest first."""
    text = payload("a").decode()
    client.sadd("processes", "p1", "p2")
    record = {"queue": "q", "payload": text, "run_at": 20}
    both = json.dumps(record)
    for key in ("p1:work", "p1:workers"):
        client.hset(key, "t1", both)
    client.hset(
        "p2:workers", "t2", json.dumps(record | {"payload": json.loads(text), "run_at": 10})
    )
    client.hset("p2:workers", "t3", "{")
    odd, old, new = inspector.works()
    assert (new.identity, new.thread, new.queue, new.run_at) == ("p1", "t1", "q", 20)
    assert (new.job.jid, new.job.payload, old.job.jid) == ("a", text.encode(), "a")
    assert (odd.job.payload, odd.run_at) == (b"{", None)
    assert odd.job.problem


@pytest.mark.parametrize(
    ("method", "name"), [("quiet", "TSTP"), ("stop", "TERM"), ("dump", "TTIN")]
)
def test_telling_a_process(inspector: Any, client: Any, method: str, name: str) -> None:
    """One transaction, with expiry; an error for an unknown or embedded process.

    INSP-13, INSP-19.
    """
    client.sadd("processes", IDENTITY, "inside")
    client.hset(IDENTITY, "info", "{}")
    client.hset("inside", "info", '{"embedded":true}')
    with commands(client) as seen:
        getattr(inspector, method)(IDENTITY)
    key = f"{IDENTITY}-signals"
    assert seen[-4:] == [["MULTI"], ["LPUSH", key, name], ["EXPIRE", key, "60"], ["EXEC"]]
    with pytest.raises(
        ConfigError, match=r"'absent' is not registered; registered processes: inside"
    ):
        getattr(inspector, method)("absent")
    if method == "dump":
        inspector.dump("inside")
    else:
        with pytest.raises(ConfigError, match="embedded"):
            getattr(inspector, method)("inside")


def test_what_processes_hold(inspector: Any, client: Any, server: Server) -> None:
    """REL-1, REL-3, REL-7: jobs in private hashes of any process; the counts of returns."""
    client.hset(IDENTITY, "info", "{}")
    client.lpush("queue:a:b", payload("x"), payload("y"), payload("z"))
    shell = SyncRedis(server.url)
    shell.run(reliable.fetch(Keys(), IDENTITY, ["a:b"], count=3, sequence=1))
    (held,) = inspector.holdings()
    assert (held.identity, held.alive, held.size) == (IDENTITY, True, 3)
    assert {(queue, job.jid) for queue, job in held.jobs} == {("a:b", jid) for jid in "xyz"}
    assert len(inspector.holdings(most=1)[0].jobs) == 1
    client.delete(IDENTITY)
    assert not inspector.holdings()[0].alive
    shell.run(reliable.recover(Keys(), own="other", now=NOW))
    shell.close()
    assert inspector.holdings() == []
    digest = hashlib.sha1(payload("x")).hexdigest()
    assert inspector.recoveries().returned[digest] == 1


def test_forgetting_the_dead(inspector: Any, client: Any) -> None:
    """BEAT-8: once a minute, by the process that gets the lock."""
    client.sadd("processes", "gone")
    assert (inspector.prune(), inspector.prune()) == (1, 0)
    assert client.exists("processes") == 0


# -- iterable jobs, executions


def test_iterations(inspector: Any, client: Any) -> None:
    """ITER-1: the state of each job; ITER-2, ITER-7: a cancelled state has an expiry."""
    client.hset("it-a", mapping={"ex": 2, "c": '{"id":5}', "rt": "7.5"})
    client.hset("it-odd", mapping={"ex": "x", "c": "{", "rt": "y"})
    client.set("it-text", "no hash")
    assert inspector.cancel("a") == inspector.cancel("a") == (int(NOW), True)
    client.hset("it-a", "cancelled", 77)
    assert inspector.cancel("a") == (77, True)
    assert inspector.cancel("new") == inspector.cancel("new") == (int(NOW), False)
    assert client.hgetall("it-new") == {b"cancelled": b"%d" % NOW, b"c": b"null"}
    assert client.ttl("it-new") == client.ttl("it-a") == 2_592_000
    a, odd, text = inspector.iterations(["a", "odd", "nobody", "text"])
    assert (a.jid, a.starts, a.cursor, a.runtime, a.cancelled_at) == ("a", 2, {"id": 5}, 7.5, 77)
    assert (odd.starts, odd.cursor, odd.problem) == (0, "{", "the cursor is not JSON")
    assert "WRONGTYPE" in text.problem
    assert {each.jid for each in inspector.all_iterations()} == {"a", "odd", "new"}


def test_executions(inspector: Any, server: Server, client: Any) -> None:
    """MET-1, MET-2, MET-4, MET-5, MET-13: minutes, hours, histograms and marks of flushes."""
    shell = SyncRedis(server.url)
    for ago in (0, 120):
        recorder = Metrics()
        tally = recorder.for_thread()
        for ms, failed in ((10, False), (50, False), (1, True)):
            tally.record("A|b", ms, failed)
        shell.run(recorder.flush(Keys(), now=NOW - ago, generation=7))
    shell.close()
    for generation in (7, 8):
        found = inspector.activity(minutes=5, generation=generation)
        assert list(found.jobs) == ["A|b"]
        job = found.jobs["A|b"]
        assert (job.total.count, job.total.failed, job.total.ms) == (6, 2, 120)
        minute = NOW // 60 * 60
        assert set(job.series) == {minute, minute - 120}
        one = inspector.job_activity("A|b", minutes=5, generation=generation).jobs["A|b"]
        assert one.series == job.series
        assert [sum(each) for each in one.histograms.values()] == [2, 0, 2, 0, 0]
    assert inspector.activity(minutes=2).jobs["A|b"].total.count == 3
    assert inspector.activity(hours=1).jobs["A|b"].total.count == 6
    assert inspector.activity(class_name="B*").jobs == {}
    assert inspector.mark_deploy("v1")
    assert not inspector.mark_deploy("v1")
    (mark,) = inspector.activity(hours=1).marks
    assert (mark.label, mark.at) == ("v1", NOW // 60 * 60)
    for wrong in ({"minutes": 0}, {"minutes": 481}, {"hours": 73}, {"hours": 1, "minutes": 1}):
        with pytest.raises(ConfigError):
            inspector.activity(**wrong)
    with pytest.raises(ConfigError, match="Sidekiq 7"):
        inspector.activity(hours=1, generation=7)


# -- other databases and names


def test_a_namespace_is_a_world_of_its_own(server: Server, client: Any) -> None:
    """KEY-4: every key has the prefix."""
    with (
        Client(server.url, namespace="{x}:") as pusher,
        Inspector(server.url, namespace="{x}:") as inspector,
    ):
        pusher.push("A", [1])
        pusher.push_in(100, "A", [2])
        assert (inspector.stats().enqueued, inspector.stats().scheduled) == (1, 1)
        inspector.sweep("schedule", "retry")
        (job, _) = inspector.jobs("default")
        inspector.delete(job)
        inspector.pause("default")
        inspector.cancel("j")
        inspector.mark_deploy("v")
        inspector.clear_queue("default")
    assert all(key.startswith(b"{x}:") for key in client.keys("*"))


def test_queues_without_a_worker_are_known(inspector: Any, client: Any) -> None:
    """INSP-1, BEAT-3: living processes count, Ruby's too, unless they are quiet."""
    for name in ("empty", "served", "quiet", "gone", "alone"):
        client.sadd("queues", name)
        if name != "empty":
            client.lpush(f"queue:{name}", payload(name))
    shapes = {"a": ["served"], "b": ["served", "served"], "q": ["quiet"], "odd": [1, None]}
    for identity, served in shapes.items():
        client.sadd("processes", identity)
        client.hset(identity, "info", json.dumps({"queues": served}))
    client.hset("q", "quiet", "true")
    client.hset("a", "quiet", "false")
    client.sadd("processes", "dead", "broken")  # the hash of the first has expired
    client.hset("broken", "info", "{")
    found = {queue.name: (queue.workers, queue.abandoned) for queue in inspector.queues()}
    assert found == {
        "alone": (0, True),
        "empty": (0, False),
        "gone": (0, True),
        "quiet": (0, True),
        "served": (2, False),
    }
    assert inspector.queue("served").workers == 2


def test_names_that_are_no_utf_8(inspector: Any, client: Any) -> None:
    """INSP-3, INSP-28: the name is shown, and found under the same bytes."""
    client.sadd("queues", b"caf\xe9")
    client.lpush(b"queue:caf\xe9", payload("a"))
    (queue,) = inspector.queues()
    assert queue.size == 1
    (job,) = inspector.jobs(queue.name)
    assert inspector.delete(job)
    assert inspector.clear_queue(queue.name) == 0
    assert client.exists("queues") == 0


def test_ages_are_those_of_the_clock(server: Server, client: Any) -> None:
    """INSP-2: by default the clock of the system."""
    client.sadd("queues", "q")
    client.lpush("queue:q", payload("a", enqueued_at=time.time() - 50))
    with Inspector(server.url) as inspector:
        assert inspector.queue("q").latency == pytest.approx(50, abs=20)
