"""A precise poller against a real server: on time, and silent in between. [SCHED-11]"""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import App
from jobwire.application.config import FetchMode
from jobwire.connection import connect
from jobwire.connection.sync import SyncRedis
from jobwire.connection.watch import Watch, WatchGuest
from jobwire.errors import NoReply, RedisRefused
from jobwire.protocol.dead_set import DeadSetLimits
from jobwire.protocol.keys import Keys
from jobwire.worker.background.canceller import Canceller
from jobwire.worker.background.poller import Poller
from jobwire.worker.base.timings import DEFAULT_TIMINGS, Timings
from tests.integration.clients import listening
from tests.server_fixtures import ServerFactory
from tests.workers import brisk, running


@contextmanager
def polling(
    server: Server,
    *,
    url: str = "",
    interval: float | None = 3600.0,
    timings: Timings = DEFAULT_TIMINGS,
    guest: bool = False,
) -> Iterator[None]:
    """Run a precise poller; without notices it would look once in an hour.

    As a guest, it uses the connection that waits for cancelled jobs, like that of a worker.
    """
    redis = SyncRedis(url or server.url)
    canceller = Canceller(redis, Keys(), lambda ids: None, timings)
    poller = Poller(
        redis,
        Keys(),
        interval=interval,
        precise=True,
        generation=lambda: 8,
        dead_limits=lambda: DeadSetLimits(time.time()),
        timings=timings,
        beside=canceller.watch if guest else None,
    )
    if guest:
        canceller.start()
    poller.start()
    try:
        yield
    finally:
        poller.close(timeout=60)
        canceller.close(timeout=60)
        redis.close()


def job(number: int, queue: str = "q") -> str:
    return json.dumps({"class": "A", "queue": queue, "args": [number], "jid": str(number)})


def lookers(client: Any) -> int:
    """Return the number of connections with tracked keys."""
    return int(client.info("clients")["tracking_clients"])


def waiting(server: Server, *, pollers: int = 1) -> None:
    """Wait until this many pollers wait for notices."""
    client = server.client()
    wait_until(lambda: lookers(client) >= pollers, 60)
    quiet(client)


def quiet(client: Any) -> None:
    """Wait until no poller has asked for anything for a moment."""

    def asked() -> int:
        return int(client.info("commandstats").get("cmdstat_zrange", {"calls": 0})["calls"])

    seen = [-1, asked()]

    def settled() -> bool:
        time.sleep(0.1)
        seen.append(asked())
        return seen[-1] == seen[-2]

    wait_until(settled, 60, "the pollers to wait")


@pytest.mark.process
@pytest.mark.parametrize("zset", ["schedule", "retry"])
def test_a_job_is_moved_when_it_is_due(server: Server, zset: str) -> None:
    """SCHED-11: pushed by any client, an earlier one after a later one, or already due."""
    client = server.client()
    late: list[float] = []
    with polling(server):
        waiting(server)
        client.zadd(zset, {job(0): time.time() + 3600})
        for number in range(1, 40):
            due = time.time() + (0.0, 0.05, 0.2)[number % 3]
            client.zadd(zset, {job(number): due})
            assert client.brpop("queue:q", 60) is not None
            late.append(time.time() - due)
    # The aim is 50 ms for 99 of 100; make bench measures it. On a busy machine this test can only
    # ask that the best job is near it, and that no job waits for the safety interval.
    assert min(late) < 0.5, sorted(late)
    assert max(late) < DEFAULT_TIMINGS.poll_safety_interval, sorted(late)
    assert client.zcard(zset) == 1


@pytest.mark.process
def test_many_pollers_move_each_job_once(server: Server) -> None:
    """SCHED-5 and SCHED-11: in the order of the due times."""
    client = server.client()
    with ExitStack() as stack:
        for _ in range(3):
            stack.enter_context(polling(server))
        waiting(server, pollers=3)
        begin = time.time() + 0.3
        client.zadd("schedule", {job(n): begin + n * 0.01 for n in range(100)})
        wait_until(lambda: client.llen("queue:q") == 100, 60)
    numbers = [json.loads(text)["args"][0] for text in reversed(client.lrange("queue:q", 0, -1))]
    assert numbers == list(range(100))


@pytest.mark.process
def test_an_idle_poller_asks_for_next_to_nothing(server: Server) -> None:
    """SCHED-27: at most ten commands in a minute, with a job that is due later."""
    client = server.client()
    assert 60 / DEFAULT_TIMINGS.poll_safety_interval * 4 <= 10
    timings = Timings(poll_safety_interval=0.5)  # a minute in a second
    client.zadd("schedule", {job(1): time.time() + 3600})
    with polling(server, timings=timings):
        waiting(server)
        with listening(server) as heard:
            began = time.monotonic()
            time.sleep(2.0)  # the poller must send few commands in this time
            lines = [line.name for line in heard() if line.name != "INFO"]
            minutes = (time.monotonic() - began) / (2 * timings.poll_safety_interval)
    assert len(lines) <= 8 * (minutes + 1)
    assert set(lines) <= {"ZCOUNT", "ZRANGE"}


def test_members_that_stay_keep_nobody_busy(server: Server) -> None:
    """SCHED-9 and SCHED-11: always due, because the key of their queue is not a list."""
    client = server.client()
    client.set("queue:broken", "no list")
    client.zadd("schedule", {job(1, "broken"): 1.0})
    with polling(server):
        waiting(server)
        with listening(server) as heard:
            time.sleep(0.5)  # as above
            assert len(heard()) <= 4
        client.zadd("schedule", {job(2): time.time() + 0.1})
        assert client.brpop("queue:q", 60) is not None
    assert client.zcard("schedule") == 1


def test_a_busy_set_is_looked_at_now_and_then(server: Server) -> None:
    """SCHED-11: with any number of scheduled jobs, the spacing limits the number of looks."""
    client = server.client()
    with polling(server), listening(server) as heard:
        waiting(server)
        heard()
        began = time.monotonic()
        for number in range(2_000):
            client.zadd("schedule", {job(number): time.time() + 3600})
        seconds = time.monotonic() - began
        asked = [line for line in heard() if line.name == "ZRANGE"]
    assert len(asked) <= 4 * (seconds / (DEFAULT_TIMINGS.poll_min_gap / 2) + 2)


def test_a_fleet_looks_no_more_often_than_one_process(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCHED-11: a notice wakes the pollers of all processes, so each waits longer."""
    client = server.client()
    fleet = 40
    client.sadd("processes", *(f"h:{number}:x" for number in range(fleet)))
    monkeypatch.setattr(random, "random", lambda: 0.5)  # of [0, 1): the average
    with polling(server):
        waiting(server)
        with listening(server) as heard:
            began = time.monotonic()
            for number in range(2_000):
                client.zadd("schedule", {job(number): time.time() + 3600})
            seconds = time.monotonic() - began
            lines = heard()
        looks = [line for line in lines if line.words[:2] == (b"ZRANGE", b"schedule")]
        assert len(looks) <= 2 * (seconds / (DEFAULT_TIMINGS.poll_min_gap * fleet) + 2)
        assert len([line for line in lines if line.name == "SCARD"]) <= 1
        client.zadd("schedule", {job(0): time.time() + 0.1})  # and still comes to due jobs
        assert client.brpop("queue:q", 60) is not None


@pytest.mark.process
@pytest.mark.parametrize("guest", [False, True])
def test_a_lost_connection_is_made_again(server: Server, guest: bool) -> None:
    """ENV-6 and SCHED-11: and jobs that became due meanwhile are moved."""
    client = server.client()
    with polling(server, guest=guest):
        waiting(server)
        for number in range(3):
            client.client_kill_filter(_type="normal", skipme=True)
            client.zadd("schedule", {job(number): time.time() + 0.05})
            assert client.brpop("queue:q", 60) is not None


@pytest.mark.process
def test_the_end_of_an_outage_is_told_without_a_due_job(
    server_factory: ServerFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """ENV-6: otherwise the log would count the time until the next due job as an outage."""
    caplog.set_level(logging.INFO)
    server = server_factory("--appendonly", "yes")

    def told(words: str) -> set[str]:
        sets = ("retry", "schedule")
        return {name for name in sets if f"promoting due jobs of {name} {words}" in caplog.text}

    with polling(server):
        server.client().zadd("schedule", {job(1): time.time() + 3600})
        waiting(server)
        server.stop()
        wait_until(lambda: len(told("failed")) == 2, 60, "the lines of the beginning")
        server.start()
        wait_until(lambda: len(told("again, after")) == 2, 60, "the lines of the end")
    assert server.client().zcard("schedule") == 1


def test_without_notices_it_looks_at_intervals(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """SCHED-8 and ENV-9: a proxy or an ACL may forbid notices; the log says this once."""
    client = server.client()
    client.acl_setuser(
        "app", enabled=True, nopass=True, keys=["*"], commands=["+@all", "-client|tracking"]
    )
    with polling(server, url=server.url.replace("redis://", "redis://app:x@"), interval=0.05):
        for number in range(3):
            client.zadd("schedule", {job(number): time.time()})
            assert client.brpop("queue:q", 60) is not None
    said = [each for each in caplog.records if "at intervals" in each.message]
    assert len(said) == 1


@pytest.mark.parametrize("guest", [False, True])
def test_a_set_of_another_type_stops_neither(
    server: Server, caplog: pytest.LogCaptureFixture, guest: bool
) -> None:
    """SCHED-5, SCHED-11: the other set is looked at; a repaired set is again on time."""
    client = server.client()
    client.set("retry", "not a sorted set")
    with polling(server, guest=guest):
        client.zadd("schedule", {job(1): time.time()})
        assert client.brpop("queue:q", 60) is not None
        client.delete("retry")
        waiting(server)
        client.zadd("retry", {job(2): time.time() + 0.1})
        assert client.brpop("queue:q", 60) is not None
    assert not [each for each in caplog.records if "at intervals" in each.message]


def test_a_guest_whose_host_is_refused_has_a_connection_of_its_own(server: Server) -> None:
    """SCHED-11 and ENV-9: the marks of cancelled jobs cannot be read, or are of another type."""
    client = server.client()
    client.set("jobwire:cancelled", "no sorted set")
    with polling(server, guest=True):
        waiting(server)
        client.zadd("schedule", {job(1): time.time() + 0.1})
        assert client.brpop("queue:q", 60) is not None


def test_a_silent_connection_of_a_guest_is_made_again(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ENV-5 and SCHED-11: the guest has its host notice, which waits for far longer."""
    monkeypatch.setattr(connect, "TIMEOUT_S", 0.5)
    client = server.client()
    with polling(server, guest=True, timings=Timings(poll_safety_interval=0.1)):
        waiting(server)
        first = {each["id"] for each in client.client_list() if "wakeup" in each["name"]}
        client.client_pause(1_500, all=True)
        wait_until(
            lambda: (
                {each["id"] for each in client.client_list() if "wakeup" in each["name"]} - first
            ),
            60,
        )
        client.zadd("schedule", {job(1): time.time() + 0.1})
        assert client.brpop("queue:q", 60) is not None


def test_guest_and_host_hear_their_own_changes(server: Server) -> None:
    """X-CANCEL-3 and SCHED-11: over one connection, at the same time."""
    client = server.client()
    stop = threading.Event()
    host = Watch(server.url, stop, stop_check_interval=0.05)
    guest = WatchGuest(host, stop)
    with pytest.raises(NoReply, match="no connection yet"):
        guest.ask([("GET", "b")])
    host.ask([("GET", "a")])
    listening = threading.Thread(target=host.wait, args=(60.0,), daemon=True)
    listening.start()
    for number in range(100):
        assert guest.ask([("GET", "b"), ("ECHO", number)])[1] == b"%d" % number
        assert guest.noticed == set()
        client.set("b", number)
        guest.wait(60.0)
        assert guest.noticed == {b"b"}
    with pytest.raises(RedisRefused, match="WRONGTYPE"):
        guest.ask([("LLEN", "b")])
    assert listening.is_alive()
    client.set("a", 1)
    listening.join(60)
    assert host.noticed == {b"a"}
    host.close()
    with pytest.raises(NoReply):
        guest.wait(60.0)
    stop.set()


def test_it_stops_at_once(server: Server) -> None:
    """SCHED-10: during any wait."""
    with polling(server):
        waiting(server)
        began = time.monotonic()
    assert time.monotonic() - began < 30
    names = [thread.name for thread in threading.enumerate()]
    assert "jobwire-poller" not in names


@pytest.mark.parametrize("fetch", ["reliable", "basic"])
def test_a_job_runs_at_its_time_by_default(server: Server, fetch: FetchMode) -> None:
    """SCHED-11: without a setting, and without a look at an interval."""
    timings = brisk(
        first_poll_wait=lambda _, jitter: 3600.0,
        next_poll_wait=lambda _, processes, jitter: 3600.0,
        poll_safety_interval=3600.0,
    )
    app = App()
    early: dict[int, float] = {}  # seconds that a job ran before its time
    due: dict[int, float] = {}
    sample = app.job(name="Sample")(lambda n: early.update({n: due[n] - time.time()}))
    with running(app, server, fetch=fetch, timings=timings):
        due |= {1: time.time() + 0.1, 2: time.time() + 0.3}
        sample.enqueue_at(due[2], 2)
        sample.enqueue_at(due[1], 1)  # may come late, so that the order says nothing
        wait_until(lambda: len(early) == 2, 60)
    assert max(early.values()) <= 0


def test_a_look_with_a_heartbeat_wakes_a_thread_that_missed_a_notice(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SCHED-11, X-CANCEL-3: and only then; a look is not repeated at once."""
    client, redis, keys = server.client(), SyncRedis(server.url), Keys()
    woken: list[str] = []
    canceller = Canceller(redis, keys, lambda ids: None, DEFAULT_TIMINGS)
    poller = Poller(
        *(redis, keys),
        interval=None,
        precise=True,
        generation=lambda: 8,
        dead_limits=lambda: DeadSetLimits(time.time()),
        beside=canceller.watch,
    )
    for thread in (canceller, poller):
        redis.run(thread.look())  # it does not wait yet
    assert "cmdstat_zrange" not in client.info("commandstats")
    monkeypatch.setattr(canceller.watch, "wake", lambda: woken.append("canceller"))
    monkeypatch.setattr(poller._watch, "wake", lambda: woken.append("poller"))
    poller._awaited = time.time() + 60
    changes: list[tuple[str, Any, list[str]]] = [
        ("another", lambda: None, []),
        (keys.cancelled, lambda: client.zadd(keys.cancelled, {"x": time.time()}), ["canceller"]),
        (keys.schedule, lambda: client.zadd(keys.schedule, {"x": time.time() + 30}), ["poller"]),
        (keys.retry, lambda: client.zadd(keys.retry, {"x": 1}), ["poller"]),
        (keys.retry, lambda: client.set(keys.retry, "x"), []),
        (keys.cancelled, lambda: client.set(keys.cancelled, "x"), []),
    ]
    for key, change, expected in changes:
        change()
        for _ in range(2):
            woken.clear()
            for thread in (canceller, poller):
                thread._looked_at = -3_600.0
                redis.run(thread.look())
        assert woken == expected, key
        refused = client.type(key) == b"string"
        sent = client.info("commandstats")["cmdstat_zrange"]["calls"]
        redis.run((canceller if key == keys.cancelled else poller).look())
        assert refused == (client.info("commandstats")["cmdstat_zrange"]["calls"] > sent)
        client.unlink(key)
    redis.close()
