"""Jobs that have ended several processes, in a running worker."""

from __future__ import annotations

import json
from hashlib import sha1
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App, PoisonPill
from jobwire.protocol.payload import Job
from tests.workers import running

TEXT = '{"class":"Crash","args":[1],"jid":"abababababababababababab","retry":true,"x":1.50}'


@pytest.mark.parametrize(("recovered", "runs"), [(3, True), (4, False)])
def test_a_job_that_ended_too_many_processes_is_buried(
    server: Server, recovered: int, runs: bool
) -> None:
    """REL-10: not run, not counted, reported to the death handlers, its bytes kept."""
    app = App()
    ran: list[int] = []
    deaths: list[Any] = []
    app.job(name="Crash")(ran.append)

    @app.on_death
    def _(job: Job, error: BaseException) -> None:
        assert isinstance(error, PoisonPill)
        deaths.append((job["error_class"], str(error), server.client().zcard("dead")))

    client = server.client()
    digest = sha1(TEXT.encode()).hexdigest()
    client.hset("jobwire:returned", mapping={digest: recovered, f"{digest}:recovered": recovered})
    client.lpush("queue:default", TEXT)
    with running(app, server):
        wait_until(lambda: ran or deaths)
    assert ran == [1] * runs
    assert client.get("stat:processed") == (b"1" if runs else None)
    assert client.keys("jobwire:private:*") == []
    if not runs:
        ((kind, message, dead),) = deaths
        assert (kind, dead) == ("jobwire.PoisonPill", 1)
        assert message.startswith("not run again: 4 processes died")
        (member,) = client.zrange("dead", 0, -1)
        assert b'"x":1.50' in member
        assert json.loads(member)["error_message"] == message


def test_the_limit_can_be_set(server: Server) -> None:
    """REL-10: with 1, the second recovery is one too many."""
    app = App()
    app.job(name="Crash")(print)
    client = server.client()
    digest = sha1(TEXT.encode()).hexdigest()
    client.hset("jobwire:returned", mapping={digest: 2, f"{digest}:recovered": 2})
    client.lpush("queue:default", TEXT)
    with running(app, server, poison_limit=1):
        wait_until(lambda: client.zcard("dead") == 1)
