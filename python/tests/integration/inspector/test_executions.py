"""Iterations and executions in the inspector."""

from __future__ import annotations

from typing import Any

import pytest

from harness.servers import Server
from jobwire.connection.sync import SyncRedis
from jobwire.errors import ConfigError
from jobwire.protocol.keys import Keys
from jobwire.protocol.metrics import Metrics
from tests.integration.inspector.entries import NOW


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
