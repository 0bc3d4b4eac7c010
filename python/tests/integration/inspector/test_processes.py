"""The processes in the inspector: their jobs, their signals and the jobs that they hold."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from harness.servers import Server
from jobwire.connection.sync import SyncRedis
from jobwire.errors import ConfigError
from jobwire.protocol import reliable
from jobwire.protocol.keys import Keys
from tests.integration.inspector.entries import IDENTITY, NOW, payload
from tests.interop.commands import commands


def test_processes(inspector: Any, client: Any) -> None:
    """From the hash, with defaults; BEAT-3, BEAT-4: hashes of any writer.

    INSP-11, INSP-25, INSP-32, INSP-33, BEAT-19.
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
