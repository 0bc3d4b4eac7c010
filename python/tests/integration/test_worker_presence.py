"""The records of a running worker: processes, heartbeat, work records, counters, signals."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.application.config import FetchMode
from jobwire.errors import RedisRefused
from jobwire.inspect import Inspector
from jobwire.inspect.activity import percentile
from jobwire.protocol.heartbeat import BEAT_INTERVAL_S
from jobwire.protocol.metrics import WAITS
from tests.server_fixtures import ServerFactory
from tests.workers import brisk, running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])


# Beats often, so that the tests need not wait ten seconds for the next.
QUICK = brisk(heartbeat_interval=0.02)


def monitored(server: Server) -> list[str]:
    """Return the commands of one beat at the start of a worker, as MONITOR shows them."""
    client: Any = server.client()
    with client.monitor() as monitor, running(App(), server):
        seen: list[str] = []
        while not seen or "EXPIRE" not in seen[-1] or "processes" not in str(seen[-4:]):
            seen.append(monitor.next_command()["command"])
        return seen


def test_a_beat_is_registration_hash_and_expiry_in_one_transaction(server: Server) -> None:
    """BEAT-1, REL-3: and the lease is there before the first fetch."""
    seen = monitored(server)
    begin = max(i for i, line in enumerate(seen) if line == "MULTI")
    words = [line.split()[0] for line in seen[begin:]]
    assert words == ["MULTI", "UNLINK", "SADD", "HSET", "EXPIRE"]
    assert seen[-1].endswith(" 60")
    assert not any("EVALSHA" in line for line in seen)
    assert BEAT_INTERVAL_S <= 10.0  # BEAT-2


@pytest.mark.process
@FETCH
def test_a_start_outlasts_lost_connections(
    server_factory: ServerFactory, fetch: FetchMode, caplog: pytest.LogCaptureFixture
) -> None:
    """ENV-6: once the server has answered."""
    server = server_factory()
    app = App()

    @app.on("startup")
    def lose() -> None:
        server.stop()
        threading.Timer(0.5, server.start).start()

    with running(app, server, fetch=fetch) as launcher:
        assert server.client().smembers("processes") == {launcher.identity.encode()}
    assert "connection lost during the start, which goes on" in caplog.text
    assert server.client().smembers("processes") == set()


def test_a_start_that_fails_leaves_nothing(server: Server) -> None:
    """BEAT-7: also if the process was registered before."""
    server.client().set("jobwire:owners", "not a set")
    with pytest.raises(RedisRefused, match="WRONGTYPE"), running(App(), server):
        pass
    assert server.client().smembers("processes") == set()


def test_basic_counters_are_written_with_the_beat(server: Server) -> None:
    """STAT-1: also before the end; a failed write keeps the counts."""
    app = App()
    app.job(name="Take")(lambda: None)
    client = server.client()
    with running(app, server, fetch="basic", timings=QUICK):
        client.lpush("queue:default", '{"class":"Take"}')
        wait_until(lambda: client.get("stat:processed") == b"1")


def test_the_waiting_time_of_a_started_job_is_written_with_the_beat(server: Server) -> None:
    """KEY-5: a job that waited 5 s, and one that does not say since when it waits."""
    app = App()
    app.job(name="Take")(lambda: None)
    client, now = server.client(), time.time()
    with running(app, server, timings=QUICK), Inspector(server.url) as inspector:
        client.lpush("queue:default", '{"class":"Take"}')
        client.lpush("queue:default", f'{{"class":"Take","enqueued_at":{int(now * 1000) - 5_000}}}')
        wait_until(lambda: inspector.activity(minutes=2).waits)
        (counts,) = inspector.activity(hours=1).waits.values()
    assert sum(counts) == 1
    half = percentile(counts, WAITS, 0.5)
    assert half is not None
    assert 4_096 < half < 120_000


def test_a_heartbeat_during_the_stop_counts_nothing_twice(server: Server) -> None:
    """MET-1: the thread that stops the worker flushes the metrics, and so does the heartbeat."""
    with running(App(), server) as launcher:
        launcher._metrics.for_thread().record("Once", 1.0, False)
        server.client().execute_command("CLIENT", "PAUSE", "300", "WRITE")
        flushes = [threading.Thread(target=launcher._on_beat) for _ in range(2)]
        for flush in flushes:
            flush.start()
        for flush in flushes:
            flush.join(60)
    client: Any = server.client()
    assert {client.hget(key, "Once|p") for key in client.keys("j|*")} == {b"1"}


def test_a_worker_in_a_program_obeys_signals_through_redis(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """SIG-4, SIG-6: Quiet and Stop of the page; its program goes on."""
    caplog.set_level(logging.INFO)
    with running(App(), server, timings=QUICK) as launcher, Inspector(server.url) as inspector:
        server.client().lpush(f"{launcher.identity}-signals", "TSTP", "TTIN", "HUP")
        wait_until(lambda: [each.quiet for each in inspector.processes()] == [True])
        wait_until(lambda: "unknown signal 'HUP' from Redis; ignored" in caplog.messages)
        assert "thread MainThread" in caplog.messages
        inspector.stop(launcher.identity)
        wait_until(lambda: not [*inspector.processes()])
        assert "TERM from Redis: the worker in this program stops" in caplog.messages


def test_dump_shows_every_thread_and_task(server: Server, caplog: pytest.LogCaptureFixture) -> None:
    """SIG-3."""
    app = App()
    release = threading.Event()
    entered: list[int] = []

    @app.job(name="StuckHere")
    def stuck_here() -> None:
        entered.append(1)
        release.wait(60)

    @app.job(name="StuckThere")
    async def stuck_there() -> None:
        import asyncio

        entered.append(1)
        while not release.is_set():
            await asyncio.sleep(0.005)

    client = server.client()
    client.lpush("queue:default", '{"class":"StuckHere"}', '{"class":"StuckThere"}')
    caplog.set_level(logging.WARNING)
    with running(app, server) as launcher:
        wait_until(lambda: len(entered) == 2)
        launcher.dump()
        release.set()
    stacks = {r.getMessage(): getattr(r, "stack", "") for r in caplog.records}
    assert any("in stuck_here" in stack for name, stack in stacks.items() if "default-" in name)
    assert "thread jobwire-heartbeat" in stacks
    assert any("in stuck_there" in stack for name, stack in stacks.items() if "task" in name)


def test_who_leaves_waits_for_what_its_heart_is_doing(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """BEAT-7: otherwise the heartbeat would open connections again after they were closed."""
    timings = brisk(heartbeat_interval=0.01, heartbeat_stop_timeout=20.0)
    entered, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        entered.set()
        assert go_on.wait(60)

    with running(App(), server, timings=timings) as launcher:
        beating = launcher._heartbeat
        monkeypatch.setattr(beating, "_on_beat", hold)
        assert entered.wait(60)
        leaving = threading.Thread(target=beating.close)
        leaving.start()
        wait_until(lambda: not server.client().scard("processes"))
        assert leaving.is_alive()
        go_on.set()
        leaving.join(60)
        assert not leaving.is_alive()
        assert not beating._thread.is_alive()


@FETCH
def test_a_job_that_takes_long_is_shown_before_the_next_heartbeat(
    server: Server, fetch: FetchMode
) -> None:
    """BEAT-3, BEAT-5: `busy` of a process that works is not 0 for ten seconds."""
    app = App()
    release = threading.Event()
    app.job(name="Hold")(lambda: release.wait(60) and None)
    client = server.client()
    for jid in "ab":
        client.lpush("queue:default", f'{{"class":"Hold","args":[],"jid":"{jid}","retry":false}}')
    late = brisk(heartbeat_interval=3_600.0, early_beat=0.1)
    with running(app, server, fetch=fetch, timings=late) as launcher:
        identity = launcher.identity
        wait_until(lambda: client.hget(identity, "busy") == b"2", timeout=60)
        assert client.hlen(f"{identity}:work") == 2
        release.set()
        wait_until(lambda: client.hget(identity, "busy") == b"0", timeout=60)
        assert not client.exists(f"{identity}:work")
