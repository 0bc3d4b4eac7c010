"""A worker in trouble: a server that goes and returns, a lease that is lost."""

from __future__ import annotations

import json
import logging
import threading
import time
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.application.config import FetchMode
from jobwire.worker import Launcher
from jobwire.worker.base.timings import Timings
from jobwire.worker.process.progress import Progress
from tests.integration.clients import push_job
from tests.server_fixtures import ServerFactory
from tests.workers import Gate, brisk, running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])


def push(server: Server, *args: object) -> None:
    texts = [json.dumps({"class": "Take", "args": [arg], "retry": True}) for arg in args]
    server.client().lpush("queue:default", *texts)


def lines(caplog: pytest.LogCaptureFixture, words: str) -> list[str]:
    return [r.getMessage() for r in caplog.records if words in r.getMessage()]


@FETCH
def test_a_restart_of_redis_costs_no_job_and_two_lines(
    server_factory: ServerFactory, fetch: FetchMode, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-1, REL-2, LUA-3, ENV-5: one line when the server goes, one when it is back."""
    caplog.set_level(logging.INFO)
    server = server_factory("--appendonly", "yes")
    gate = Gate()
    with running(gate.app, server, concurrency=2, fetch=fetch) as worker:
        push(server, "done", "fails", "next")
        wait_until(lambda: len(gate.entered) == 2)
        server.stop()
        gate.open.set()
        wait_until(lambda: lines(caplog, "fetching failed"))
        server.start()
        wait_until(lambda: "next" in gate.entered)
        wait_until(lambda: server.client().zcard("retry") == 1)
        wait_until(lambda: lines(caplog, "fetching again"))
        push(server, "after")
        wait_until(lambda: "after" in gate.entered)
        wait_until(lambda: not server.client().exists(f"jobwire:private:{worker.identity}"))
    assert sorted(gate.entered) == ["after", "done", "fails", "next"]
    assert len(lines(caplog, "fetching failed")) == 1
    assert len(lines(caplog, "fetching again")) == 1
    assert len(lines(caplog, "not stored yet")) <= 1
    if fetch == "reliable":
        assert server.client().get("stat:processed") == b"4"


@pytest.mark.process
@FETCH
def test_an_idle_worker_states_how_long_an_outage_lasted(
    server_factory: ServerFactory, fetch: FetchMode, caplog: pytest.LogCaptureFixture
) -> None:
    """ENV-6: also if no job comes after it, and the worker waits for one."""
    caplog.set_level(logging.INFO)
    server = server_factory("--appendonly", "yes")  # keeps the lease
    # The wait for a job takes longer than the test.
    timings = Timings(reclaim_interval=600.0, fetch_safety_interval=600.0)
    with running(App(), server, fetch=fetch, timings=timings):
        began = time.monotonic()
        server.stop()
        wait_until(lambda: lines(caplog, "fetching failed"))
        server.start()
        wait_until(lambda: lines(caplog, "fetching again"))
        lasted = time.monotonic() - began
    (line,) = lines(caplog, "fetching again")
    assert float(line.split()[-2]) <= lasted + 0.1  # it is rounded


def test_a_flush_of_the_scripts_is_not_even_noticed(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """LUA-3: load and repeat, for fetches and for outcomes."""
    caplog.set_level(logging.WARNING)
    app = App()
    got: list[Any] = []
    app.job(name="Take")(got.append)
    client = server.client()
    with running(app, server):
        for number in range(5):
            client.script_flush()
            push(server, number)
            wait_until(lambda number=number: got == list(range(number + 1)))  # type: ignore[misc]
        wait_until(lambda: client.get("stat:processed") == b"5")
    assert caplog.records == []


@pytest.mark.process
@FETCH
def test_a_server_that_stops_answering_is_waited_for(
    server: Server, fetch: FetchMode, caplog: pytest.LogCaptureFixture
) -> None:
    """ENV-3, ENV-5, REL-1: no reply to a fetch that the server nevertheless carries out."""
    caplog.set_level(logging.INFO)
    app = App()
    got: list[Any] = []
    app.job(name="Take")(got.append)

    def pushed_again() -> bool:
        push(server, "after")
        return True

    # A short timeout of replies, because five seconds are long for a test.
    timings = brisk(redis_timeout=0.3)
    with running(app, server, concurrency=2, fetch=fetch, timings=timings) as worker:
        push(server, *range(500))
        wait_until(lambda: len(got) > 20)
        server.pause()
        wait_until(lambda: lines(caplog, "fetching failed"))
        server.resume()
        wait_until(lambda: lines(caplog, "fetching again"))
        if fetch == "reliable":
            push(server, "after")
            wait_until(lambda: {*range(500), "after"} <= set(got))
            client = server.client()
            wait_until(lambda: not client.exists(f"jobwire:private:{worker.identity}"))
        else:  # the jobs of a lost answer are lost, and on a busy machine one more answer may be
            wait_until(lambda: pushed_again() and "after" in got)


@FETCH
def test_a_lost_lease_is_renewed_and_the_worker_goes_on(
    server: Server, fetch: FetchMode, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-16: a fetch without a lease takes nothing."""
    caplog.set_level(logging.WARNING)
    app = App()
    got: list[Any] = []
    app.job(name="Take")(got.append)
    client = server.client()
    with running(app, server, fetch=fetch) as worker:
        client.delete(worker.identity)
        push(server, 1)
        wait_until(lambda: got == [1])
        if fetch == "reliable":
            assert client.exists(worker.identity)
            assert lines(caplog, "lease lost")


def test_a_second_run_of_an_unfinished_job_shows_in_the_log(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """REL-24: the count is forgotten when a run ends."""
    caplog.set_level(logging.INFO)
    gate = Gate()
    client = server.client()
    for run in range(3):
        with running(gate.app, server, concurrency=1, timeout=0.0) as worker:
            if run == 0:
                push(server, 1)
            if run == 2:
                gate.open.set()
            wait_until(lambda run=run: len(gate.entered) == run + 1)  # type: ignore[misc]
            if run == 2:
                wait_until(lambda: client.get("stat:processed") == b"1")
            else:
                worker.stop()
    starts = [
        getattr(r, "returned", None) for r in caplog.records if r.getMessage().split()[0] == "start"
    ]
    assert starts == [None, 1, 2]
    assert not client.exists("jobwire:returned")


def test_stopping_without_redis_ends_in_time(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """SIG-1, SIG-5: jobs that could not be put back are held, and recovered later."""
    gate = Gate()
    with running(gate.app, server, concurrency=1, timeout=0.1) as worker:
        push(server, 1)
        wait_until(lambda: gate.entered)
        server.kill()
        began = time.monotonic()
        threading.Timer(0.5, gate.open.set).start()
        worker.stop()
        assert time.monotonic() - began < 60
    assert lines(caplog, "were not put back")


@pytest.mark.process
def test_stopping_while_the_server_refuses_outcomes_ends_in_time(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """SIG-12: the outcome is tried for a few seconds more, then the job stays held."""
    gate = Gate()
    with server.client() as client, running(gate.app, server, concurrency=1, timeout=1) as worker:
        push(server, 1)
        wait_until(lambda: gate.entered)
        client.config_set("min-replicas-to-write", 1)
        gate.open.set()
        began = time.monotonic()
        worker.stop()
        assert time.monotonic() - began < 60
        client.config_set("min-replicas-to-write", 0)
        assert sum(client.hlen(key) for key in client.keys("jobwire:private:*")) == 1
    assert lines(caplog, "could not be stored")


# -- A worker that hangs says so, and gives up its lease. [REL-3] [BEAT-2]

TIMINGS = brisk(stuck_after=2.0, heartbeat_interval=0.1, fetch_safety_interval=0.1)


def test_only_a_part_without_progress_hangs() -> None:
    values: dict[str, object] = {"waits": None, "hangs": 1, "works": 0}
    progress = Progress({name: lambda name=name: values[name] for name in values}, limit=0.05)  # type: ignore[misc]

    def look() -> str:
        values["works"] = object()
        return progress.stuck()

    assert look() == ""
    assert wait_until(look) == "hangs stuck for 0 s"
    values["hangs"] = 2
    assert look() == ""


def beat(server: Server, launcher: Launcher) -> Any:
    return server.client().hget(launcher.identity, "beat")


@pytest.mark.process
@pytest.mark.parametrize("part", ["ticker", "handler"])
def test_a_worker_that_hangs_gives_up_its_lease_until_it_works_again(
    server: Server, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    """A handler or a check that never ends is a reason."""
    app, go_on, begun = App(), threading.Event(), threading.Event()

    @app.job(name="Long")
    def long() -> None:
        begun.set()
        if part == "handler":
            raise ValueError
        go_on.wait(60)

    @app.on_error
    def hang(job: object, error: object) -> None:
        go_on.wait(60)

    def hang_in_check() -> None:
        go_on.wait(60)

    push_job(server, "Long")
    try:
        with running(app, server, concurrency=1, timings=TIMINGS) as launcher:
            assert begun.wait(60)
            if part == "ticker":
                launcher._ticker.add_periodic_check(hang_in_check)
                launcher._ticker.wake()
            name = "ticker" if part == "ticker" else "each thread of capsule default"
            # On a busy machine another part may be late first.
            wait_until(lambda: (launcher.stuck() or "").startswith(f"{name} stuck for "))
            wait_until(lambda: [r for r in caplog.messages if "the lease is given up" in r])
            last = beat(server, launcher)
            turned = launcher._heartbeat.turned_at
            wait_until(lambda: launcher._heartbeat.turned_at > turned + 0.5)
            assert beat(server, launcher) == last
            go_on.set()
            wait_until(lambda: not launcher.stuck())
            wait_until(lambda: beat(server, launcher) != last)
            assert [r for r in caplog.messages if "works again" in r]
    finally:
        go_on.set()


@pytest.mark.process
def test_long_jobs_and_an_idle_worker_are_no_reason(server: Server) -> None:
    app, go_on, begun = App(), threading.Event(), threading.Event()

    @app.job(name="Long")
    def long() -> None:
        begun.set()
        go_on.wait(60)

    try:
        with running(app, server, concurrency=1, timings=TIMINGS) as launcher:
            for wait in (True, False):
                turned = launcher._heartbeat.turned_at
                wait_until(
                    lambda at=turned: launcher.stuck() or launcher._heartbeat.turned_at > at + 3  # type: ignore[misc]
                )
                assert launcher.stuck() == ""
                if wait:
                    push_job(server, "Long")
                    assert begun.wait(60)
    finally:
        go_on.set()
