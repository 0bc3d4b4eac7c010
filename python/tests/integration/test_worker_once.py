"""Jobs with `redeliver=False`: acknowledged before they run, and so run at most once."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from hashlib import sha1
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App, ConfigError, JobType, Shutdown
from jobwire.application.config import FetchMode
from jobwire.errors import NoReply
from jobwire.worker.fetch.reliable import ReliableFetcher
from tests.integration.clients import push_job
from tests.workers import brisk, running

# Each way to fetch, and each kind of job, but not all four pairs: neither knows of the other.
WAYS = pytest.mark.parametrize(
    ("fetch", "is_async"), [("reliable", False), ("basic", True)], ids=["sync", "async-basic"]
)
KIND = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])
TIMINGS = brisk(heartbeat_interval=0.02)


def left(server: Server) -> dict[str, int]:
    """Return the number of jobs at each place."""
    client = server.client()
    places: dict[str, Any] = {key: client.zcard(key) for key in ("retry", "dead", "schedule")}
    places["queue"] = client.llen("queue:default")
    for key in client.keys("jobwire:private:*"):
        places["held"] = client.hlen(key)
    return {place: number for place, number in places.items() if number}


def stats(server: Server) -> tuple[int, int]:
    client: Any = server.client()
    return int(client.get("stat:processed") or 0), int(client.get("stat:failed") or 0)


def once(app: App, work: Any, is_async: bool) -> JobType[[], Any]:
    async def later() -> None:
        work()

    return app.job(name="Once", retry=False, redeliver=False)(later if is_async else work)


@WAYS
def test_what_follows_its_outcome_is_no_outcome(
    server: Server, fetch: FetchMode, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """X-STEP-5, STAT-1: its steps are forgotten, and no outcome is called lost."""
    app = App()
    ran = threading.Event()

    def work() -> None:
        ran.set()

    async def with_steps() -> None:
        await app.astep("first", later)

    async def later() -> None:
        work()

    def with_step() -> None:
        app.step("first", work)

    job = app.job(name="Once", retry=False, redeliver=False)
    job(with_steps if is_async else with_step)
    push_job(server, "Once", jid="once")
    with running(app, server, fetch=fetch):
        assert ran.wait(30)
        wait_until(lambda: stats(server) == (1, 0) and not server.client().keys("jobwire:steps:*"))
    assert not server.client().exists("jobwire:stat:lost")
    assert not [one for one in caplog.records if "dropped" in one.getMessage()]


@WAYS
def test_redis_has_forgotten_the_job_when_it_runs(
    server: Server, fetch: FetchMode, is_async: bool
) -> None:
    """REL-2, STAT-1: it is counted once."""
    app = App()
    seen: list[dict[str, int]] = []
    once(app, lambda: seen.append(left(server)), is_async)
    push_job(server, "Once")
    with running(app, server, fetch=fetch, timings=TIMINGS):
        wait_until(lambda: seen)
        wait_until(lambda: stats(server) == (1, 0))
    assert seen == [{}]
    assert (left(server), stats(server)) == ({}, (1, 0))


@WAYS
def test_a_failure_is_final_whatever_the_payload_says(
    server: Server, fetch: FetchMode, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """RETRY-13, STAT-1: counted as failed; the handlers are called."""
    app = App()
    heard: list[str] = []
    app.on_error(lambda job, error: heard.append(f"error {job.jid} {error}"))
    app.on_death(lambda job, error: heard.append(f"death {job.jid} {error}"))

    def fail() -> None:
        raise ValueError("boom")

    once(app, fail, is_async)
    push_job(server, "Once", jid="j", retry=True)
    with running(app, server, fetch=fetch, timings=TIMINGS):
        wait_until(lambda: stats(server) == (1, 1))
        wait_until(lambda: len(heard) == 2)
    assert heard == ["death j boom", "error j boom"]
    assert (left(server), stats(server)) == ({}, (1, 1))
    (line,) = (record for record in caplog.records if "fail: " in record.getMessage())
    assert line.levelname == "ERROR"
    assert "ValueError: boom; no retry, because redeliver is false; dropped" in line.getMessage()


@WAYS
def test_a_stop_does_not_put_it_back(
    server: Server, fetch: FetchMode, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """SIG-5: beside a job that is put back."""
    app = App()
    started: list[str] = []
    release = threading.Event()

    def wait(name: str) -> None:
        started.append(name)
        while not release.is_set():
            time.sleep(0.005)

    async def await_(name: str) -> None:
        started.append(name)
        await asyncio.sleep(60)

    def define(name: str, **options: Any) -> None:
        def work() -> None:
            wait(name)

        async def awork() -> None:
            await await_(name)

        app.job(name=name, **options)(awork if is_async else work)

    define("Once", retry=False, redeliver=False)
    define("Again", retry=False)
    push_job(server, "Once", jid="once")
    push_job(server, "Once", jid="again", **{"class": "Again"})
    try:
        with running(app, server, fetch=fetch, timeout=0.1, timings=TIMINGS):
            wait_until(lambda: len(started) == 2)
    finally:
        release.set()
    assert left(server) == {"queue": 1}
    (again,) = server.client().lrange("queue:default", 0, -1)
    assert json.loads(again)["jid"] == "again"
    lost = [r for r in caplog.records if "it does not run again" in r.getMessage()]
    assert [record.levelno for record in lost] == [logging.ERROR]


@KIND
@pytest.mark.parametrize("applied", [False, True])
def test_without_a_certain_acknowledgement_it_does_not_run(
    server: Server,
    applied: bool,
    is_async: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """REL-8: a reply that is lost; if Redis still has the job, it runs later."""
    app = App()
    ran: list[int] = []
    acknowledge = ReliableFetcher.acknowledge
    calls: list[bool] = []

    def broken(source: ReliableFetcher, held: Any) -> bool:
        calls.append(True)
        if len(calls) > 1:
            return acknowledge(source, held)
        if applied:
            acknowledge(source, held)
        raise NoReply("no reply")

    monkeypatch.setattr(ReliableFetcher, "acknowledge", broken)
    once(app, lambda: ran.append(1), is_async)
    push_job(server, "Once")
    with running(app, server, timings=TIMINGS):
        wait_until(lambda: left(server) == {} and calls)
        if not applied:
            wait_until(lambda: ran)
    assert len(ran) == (0 if applied else 1)
    assert stats(server) == (1, 0)
    assert "not run, because redeliver is false; it runs later if Redis still has it" in caplog.text


def test_a_job_that_another_process_has_recovered_does_not_run(
    server: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-15, REL-23: the entry in the private hash decides."""
    app = App()
    ran: list[int] = []
    acknowledge = ReliableFetcher.acknowledge

    def late(source: ReliableFetcher, held: Any) -> bool:
        for key in server.client().keys("jobwire:private:*"):
            server.client().delete(key)
        return acknowledge(source, held)

    monkeypatch.setattr(ReliableFetcher, "acknowledge", late)
    once(app, lambda: ran.append(1), False)
    push_job(server, "Once")
    with running(app, server, timings=TIMINGS):
        wait_until(lambda: "another process has it" in caplog.text)
    assert (ran, stats(server)) == ([], (0, 0))


def test_a_task_that_other_code_cancels_is_a_failure(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-7: other jobs are put back."""
    app = App()
    runs: list[int] = []

    @app.job(name="Once", retry=False, redeliver=False)
    async def cancelled() -> None:
        runs.append(1)
        task = asyncio.current_task()
        assert task
        asyncio.get_running_loop().call_soon(task.cancel)
        await asyncio.sleep(60)

    push_job(server, "Once")
    with running(app, server, timings=TIMINGS):
        wait_until(lambda: stats(server) == (1, 1))
    assert (runs, left(server)) == ([1], {})
    assert "CancelledError" in caplog.text


def test_retries_are_refused() -> None:
    app = App()

    def work() -> None: ...

    for options in ({}, {"retry": True}, {"retry": 0}, {"retry_for": 60}):
        with pytest.raises(ConfigError, match="redeliver=False needs retry=False, because a retry"):
            app.job(name="Once", redeliver=False, **options)(work)
    job = app.job(name="Once", redeliver=False, retry=False)(work)
    with pytest.raises(ConfigError, match=r"needs retry=False.*; retry is 3"):
        job.options(retry=3)
    assert job.options(queue="low").defaults == {"retry": False, "queue": "low"}
    assert not App(retry=False).job(redeliver=False)(work).redeliver


def test_shutdown_is_the_job_s_own_to_see(server: Server) -> None:
    """SIG-5: it may clean up, as any other job."""
    app = App()
    started, cleaned = threading.Event(), threading.Event()

    def work() -> None:
        try:
            started.set()
            while True:
                time.sleep(0.005)
        except Shutdown:
            cleaned.set()
            raise

    once(app, work, False)
    push_job(server, "Once")
    with running(app, server, timeout=0.1, timings=TIMINGS):
        assert started.wait(30)
    assert cleaned.is_set()


TEXT = '{"class":"Crash","args":[1],"jid":"abababababababababababab","retry":true,"x":1.50}'


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
