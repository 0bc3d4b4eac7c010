"""Views of the inspector: totals, sets, queues and single jobs."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from harness.servers import Server
from jobwire.connection.sync import SyncRedis
from jobwire.errors import ConfigError, RedisRefused
from jobwire.inspect import Inspector
from jobwire.protocol.keys import Keys
from jobwire.protocol.metrics import Metrics
from tests.integration.inspector.entries import IDENTITY, NOW, fill, payload


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
    fill(client, "jobwire:parked", 5)
    client.sadd("processes", IDENTITY, "gone")
    client.hset(IDENTITY, mapping={"info": "{}", "busy": 5})
    found = inspector.stats()
    assert (found.processed, found.failed, found.busy, found.processes) == (10, 4, 5, 2)
    assert (found.scheduled, found.retries, found.dead, found.unreadable) == (1, 2, 3, 4)
    assert found.parked == 5
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


def test_ages_are_those_of_the_clock(server: Server, client: Any) -> None:
    """INSP-2: by default the clock of the system."""
    client.sadd("queues", "q")
    client.lpush("queue:q", payload("a", enqueued_at=time.time() - 50))
    with Inspector(server.url) as inspector:
        assert inspector.queue("q").latency == pytest.approx(50, abs=20)


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


def test_iterations(inspector: Any, client: Any) -> None:
    """ITER-1: the state of each job; ITER-2, ITER-7: a cancelled state has an expiry."""
    client.hset("it-a", mapping={"ex": 2, "c": '{"id":5}', "rt": "7.5"})
    client.hset("it-odd", mapping={"ex": "x", "c": "{", "rt": "y"})
    client.set("it-text", "no hash")
    assert inspector.cancel("a") == inspector.cancel("a") == (int(NOW), True, "unknown")
    client.hset("it-a", "cancelled", 77)
    assert inspector.cancel("a") == (77, True, "unknown")
    assert inspector.cancel("new") == inspector.cancel("new") == (int(NOW), False, "unknown")
    assert client.hgetall("it-new") == {b"cancelled": b"%d" % NOW, b"c": b"null"}
    for key in ("it-new", "it-a"):  # the server counts the seconds of a slow test
        assert 2_591_900 < client.ttl(key) <= 2_592_000
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
            tally.began(NOW, int(NOW * 1000) - ms)
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
    assert {at: sum(counts) for at, counts in inspector.activity(minutes=5).waits.items()} == {
        minute: 3,
        minute - 120: 3,
    }
    assert [sum(counts) for counts in inspector.activity(hours=1).waits.values()] in ([6], [3, 3])
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
