"""Results, snooze and cancelling of jobs that run in processes of their own."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from harness.servers import Server, wait_until
from tests.apps.isolated_ends import app, fail, nap, odd, seven, wait
from tests.integration.payloads import scored
from tests.workers import running

pytestmark = pytest.mark.process


def test_results_come_out_of_the_process(server: Server) -> None:
    """X-RESULT-4, X-RESULT-5: a value, a value that JSON has not, and a failure."""
    with running(app, server):
        jids = [job.enqueue() or "" for job in (seven, odd, fail)]
        value, problem, failure = (app.client.result(jid, timeout=30) for jid in jids)
    assert value is not None
    assert value.get() == 7
    assert problem is not None
    assert problem.outcome == "done"
    assert problem.problem is not None
    assert "set" in problem.problem
    assert failure is not None
    assert (failure.outcome, failure.error_class, failure.error_message) == (
        "dead",
        "ValueError",
        "seven",
    )


def test_a_job_in_a_process_puts_itself_off(server: Server) -> None:
    """X-TIME-4, X-TIME-5: it waits in the schedule, and has not failed."""
    client: Any = server.client()
    with running(app, server):
        nap.enqueue()
        wait_until(lambda: client.zcard("schedule"))
    ((fields, at),) = scored(server, "schedule")
    assert 3500 < at - time.time() < 3700
    assert (fields["class"], fields["jw_snoozes"]) == ("Nap", 1)
    assert "retry_count" not in fields
    assert int(client.get("stat:failed") or 0) == 0


def test_a_job_in_a_process_is_cancelled(server: Server) -> None:
    """X-CANCEL-6, X-CANCEL-7: it is interrupted where it is, and has not failed."""
    client: Any = server.client()
    with running(app, server):
        jid = wait.enqueue("x") or ""
        wait_until(lambda: client.llen("queue:begun"))
        asked = time.monotonic()
        assert wait.cancel(jid).place == "running"
        result = wait.result(jid, timeout=30)
        took = time.monotonic() - asked
    assert result is not None
    assert result.outcome == "cancelled"
    assert took < 20  # the job itself takes 60 s
    assert not client.exists("retry", "dead", "jobwire:cancelled")
    assert int(client.get("stat:failed") or 0) == 0
    assert json.loads(client.lindex("queue:begun", 0))["args"] == ["x"]
