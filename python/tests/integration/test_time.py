"""Jobs that come too late, and jobs that put themselves off. [X-TIME-1] to [X-TIME-6]"""

from __future__ import annotations

import asyncio
import json
import time
from datetime import timedelta
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App, ConfigError, Snooze
from jobwire.application.config import FetchMode
from tests.integration.clients import push_job, scored
from tests.workers import running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])


def numbers(server: Server) -> tuple[int, int, int]:
    """Return the counters processed, failed and expired."""
    client: Any = server.client()
    names = ("stat:processed", "stat:failed", "jobwire:stat:expired")
    processed, failed, expired = (int(client.get(name) or 0) for name in names)
    return processed, failed, expired


def test_the_last_moment_is_in_the_payload(server: Server) -> None:
    """X-TIME-1: from the push, or from the time of a scheduled job; each job has its own."""
    app = App()
    job = app.job(name="Work", expires_in=60)(lambda: None)
    app.connect(server.url)
    client: Any = server.client()
    now = time.time()
    job.enqueue()
    job.enqueue_at(now + 1000)
    app.client.push_bulk("Work", [[], []], at=[now + 2000, now + 3000], expires_in=5)
    app.client.push_bulk("Work", [[], []], expires_in=7.5)
    queued = [json.loads(text)["jw_expires_at"] for text in client.lrange("queue:default", 0, -1)]
    late = [fields["jw_expires_at"] for fields, _ in scored(server, "schedule")]
    assert [round(at - now) for at in queued] in ([8, 8, 60], [7, 7, 60])
    assert [round(at - now) for at in late] == [1060, 2005, 3005]
    job.enqueue()
    second = json.loads(client.lindex("queue:default", 0))["jw_expires_at"]
    assert second > queued[-1]  # not that of a template
    app.close()


@FETCH
@pytest.mark.parametrize("is_async", [False, True])
def test_a_late_job_is_dropped(server: Server, fetch: FetchMode, is_async: bool) -> None:
    """X-TIME-2, X-TIME-3: it does not run, and nothing is left of it."""
    ran: list[int] = []
    app = App()

    async def later() -> None:
        ran.append(1)

    job = app.job(name="Work", keep_result=60)(later if is_async else lambda: ran.append(1))
    told: list[Any] = []
    app.on_expired(lambda job: told.append(job.jid))
    failures: list[Any] = []
    app.on_death(lambda job, error: failures.append(error))
    push_job(server, "Work", jw_expires_at=time.time() - 1, retry_count=3)
    with running(app, server, fetch=fetch):
        result = job.result("ab" * 12, timeout=60)
        wait_until(lambda: told and numbers(server) == (0, 0, 1))
    assert result is not None
    assert (result.outcome, result.value) == ("expired", None)
    assert (ran, told, failures) == ([], ["ab" * 12], [])
    assert not server.client().exists("queue:default", "retry", "dead")
    assert not server.client().keys("jobwire:private:*")


def test_a_broken_handler_loses_nothing(server: Server) -> None:
    """X-TIME-3: its error is logged."""
    app = App()
    app.job(name="Work")(lambda: None)
    app.on_expired(lambda job: 1 / 0)
    push_job(server, "Work", jw_expires_at=1)
    push_job(server, "Work")
    with running(app, server):
        wait_until(lambda: numbers(server) == (1, 0, 1))


@FETCH
@pytest.mark.parametrize("is_async", [False, True])
def test_a_job_puts_itself_off(server: Server, fetch: FetchMode, is_async: bool) -> None:
    """X-TIME-4, X-TIME-5: to the schedule, as it was, and then it runs again."""
    app = App()
    runs: list[int] = []

    def work() -> int:
        runs.append(1)
        if len(runs) == 1:
            raise Snooze(timedelta(seconds=500))
        return len(runs)

    async def awork() -> int:
        await asyncio.sleep(0)
        return work()

    job = app.job(name="Work", keep_result=60)(awork if is_async else work)
    told: list[Any] = []
    app.on_error(lambda job, error: told.append(error))
    app.on_death(lambda job, error: told.append(error))
    now = time.time()
    push_job(server, "Work", queue="other", enqueued_at=5, retry_count=3, failed_at=7, x=1.50)
    with running(app, server, fetch=fetch):
        wait_until(lambda: scored(server, "schedule"))
        ((fields, due),) = scored(server, "schedule")
        assert 499 < due - now < 600
        assert fields == {
            **{"class": "Work", "args": [], "jid": "ab" * 12, "queue": "default"},
            **{"retry_count": 3, "failed_at": 7, "x": 1.5, "jw_snoozes": 1},
        }
        assert not server.client().keys("jobwire:private:*")
        client: Any = server.client()
        [(text, _)] = client.zrange("schedule", 0, -1, withscores=True)
        client.zadd("schedule", {text: 1})
        result = job.result("ab" * 12, timeout=60)
        wait_until(lambda: numbers(server)[:2] == (1, 0) or fetch == "basic")
    assert result is not None
    assert (result.value, told) == (2, [])
    assert numbers(server) == (1, 0, 0)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), 2e9, True])
def test_a_time_that_is_none_is_refused(seconds: Any) -> None:
    """X-TIME-1, X-TIME-4, PUSH-4."""
    with pytest.raises(ValueError, match="seconds"):
        Snooze(seconds)
    with pytest.raises(ConfigError, match="expires_in"):
        App().job(name="Work", expires_in=seconds)(lambda: None)
    with pytest.raises(ValueError, match="limit"):
        Snooze(1, limit=0)
