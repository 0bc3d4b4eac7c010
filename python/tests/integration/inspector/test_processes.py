"""The processes in the inspector: their jobs, their signals and the jobs that they hold."""

from __future__ import annotations

import hashlib
from typing import Any

from harness.servers import Server
from jobwire.connection.sync import SyncRedis
from jobwire.protocol import reliable
from jobwire.protocol.keys import Keys
from tests.integration.inspector.entries import IDENTITY, NOW, payload


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
