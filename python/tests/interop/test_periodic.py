"""Periodic jobs shared with real sidekiq-cron 1.8.0 on Sidekiq 6.4.1."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from harness.chroots import CHROOTS
from harness.servers import Server, wait_until
from jobwire.connection.sync import SyncRedis
from jobwire.periodic.schedule import load, set_enabled
from jobwire.protocol import periodic
from jobwire.protocol.keys import Keys
from jobwire.protocol.periodic_entry import PeriodicEntry, StoredEntry
from jobwire.protocol.wire import once
from tests.chaos.periodic import Fleet, run
from tests.interop.driver import Driver
from tests.interop.sidekiq import CRON_VERSION, RealSidekiq, require_cron
from tests.server_fixtures import ServerFactory

pytestmark = pytest.mark.interop

KEYS = Keys("")
SHOWN = "Cron.all.sort_by(&:name).map { |j| [j.name, j.klass, j.cron, j.args, j.status] }"


@pytest.fixture
def cron(server: Server) -> Iterator[Driver]:
    """The API of sidekiq-cron, on the test's own server."""
    require_cron()
    with RealSidekiq(CRON_VERSION, CHROOTS / CRON_VERSION, server.url).driver(
        loads="cron.rb"
    ) as driver:
        yield driver


@pytest.fixture
def connection(server: Server) -> Iterator[SyncRedis]:
    """A connection of ours to the same server."""
    connection = SyncRedis(server.url)
    yield connection
    connection.close()


def ours(connection: SyncRedis) -> list[StoredEntry]:
    entries: list[StoredEntry] = connection.run(periodic.read_entries(KEYS))
    return sorted(entries, key=lambda entry: entry.name)


def fields(client: Any, key: str) -> dict[str, str]:
    stored: dict[bytes, bytes] = client.hgetall(key)
    return {name.decode(): text.decode() for name, text in stored.items()}


def save(connection: SyncRedis, **changes: Any) -> None:
    definition: dict[str, Any] = {"name": "ours", "cron": "30 3 * * * Asia/Kolkata"}
    definition |= {"job": "ReportJob", "args": [1, {"a": None}], **changes}
    connection.run(load(KEYS, [PeriodicEntry(**definition)], schedule=""))


def test_entries_look_the_same_in_both_lists(
    cron: Driver, client: Any, connection: SyncRedis
) -> None:
    """X-CRON-1, X-CRON-2, X-CRON-33, X-CRON-44: entries of either writer."""
    cron.eval(
        'Cron.create(name: "theirs", cron: "0 5 * * * UTC", class: "EchoJob", args: ["x"], '
        'queue: "low", status: "disabled")'
    )
    save(connection)
    assert client.smembers("cron_jobs") == {b"cron_job:theirs", b"cron_job:ours"}
    shown = [
        ["ours", "ReportJob", "30 3 * * * Asia/Kolkata", [1, {"a": None}], "enabled"],
        ["theirs", "EchoJob", "0 5 * * * UTC", ["x"], "disabled"],
    ]
    assert cron.eval(SHOWN) == shown
    assert [
        [e.name, e.job, e.cron, e.args, "enabled" if e.enabled else "disabled"]
        for e in ours(connection)
    ] == shown


def test_a_save_on_either_side_keeps_what_is_not_its_own(
    cron: Driver, client: Any, connection: SyncRedis
) -> None:
    """X-CRON-34: unknown fields, the status and the time of the last push survive."""
    cron.eval('Cron.create(name: "theirs", cron: "0 5 * * * UTC", class: "EchoJob", args: [])')
    save(connection, catch_up="all:5", overlap="skip")
    for key in ("cron_job:theirs", "cron_job:ours"):
        time_of_push = "2026-02-10 10:00:10 +0000"
        client.hset(key, mapping={"x_team": "ops", "last_enqueue_time": time_of_push})
        client.hset(key, "status", "disabled")
    before = {name: fields(client, f"cron_job:{name}") for name in ("theirs", "ours")}
    cron.eval("Cron.all.each(&:save)")
    for name, stored in before.items():
        after = fields(client, f"cron_job:{name}")
        after["last_enqueue_time"] = after["last_enqueue_time"].replace("UTC", "+0000")
        assert after == stored, name
    save(connection, description="changed", catch_up="all:5", overlap="skip")
    save(connection, name="theirs", cron="0 5 * * * UTC", job="EchoJob", args=[])
    for name, stored in before.items():
        after = fields(client, f"cron_job:{name}")
        for field in ("x_team", "status"):
            assert after[field] == stored[field], name
        assert after["last_enqueue_time"].startswith("2026-02-10 10:00:10"), name
    assert cron.eval('Cron.find("ours").description') == "changed"


def test_either_side_enables_disables_and_removes(
    cron: Driver, client: Any, connection: SyncRedis
) -> None:
    """X-CRON-37, X-CRON-40: Ruby sees what we did, and we see what Ruby did."""
    cron.eval('Cron.create(name: "theirs", cron: "0 5 * * * UTC", class: "EchoJob")')
    save(connection)
    mine, theirs = ours(connection)
    connection.run(set_enabled(KEYS, theirs, enabled=False))
    assert cron.eval('Cron.find("theirs").status') == "disabled"
    cron.eval('Cron.find("ours").disable!')
    assert [entry.enabled for entry in ours(connection)] == [False, False]
    cron.eval('Cron.find("ours").enable!')
    assert [entry.enabled for entry in ours(connection)] == [True, False]
    connection.run(periodic.remove(KEYS, theirs))
    assert cron.eval("Cron.count") == 1
    cron.eval('Cron.destroy("ours")')
    assert ours(connection) == []
    assert list(client.scan_iter("cron_job*")) == []
    assert mine.name == "ours"


def test_a_job_is_pushed_alike_by_both(cron: Driver, client: Any, connection: SyncRedis) -> None:
    """X-CRON-29, X-CRON-6: the payload of a class that Ruby does not know, and the history."""
    use_layout_1(cron)
    save(connection, options={"queue": "low", "retry": 3, "tags": ["a"]})
    entry = next(entry for entry in ours(connection) if entry.name == "ours")
    now = time.time()
    payload = entry.payload(jid="0" * 24, now=now, generation=7)
    connection.run(periodic.run_now(KEYS, entry, payload, now=now))
    cron.eval('Cron.find("ours").enque!')
    theirs, mine = (json.loads(text) for text in client.lrange("queue:low", 0, -1))
    for each in (theirs, mine):
        assert abs(each.pop("enqueued_at") - now) < 30
        assert abs(each.pop("created_at") - now) < 30
        assert len(each.pop("jid")) == 24
    assert mine == theirs
    history = client.lrange("cron_job:ours:jid_history", 0, -1)
    assert [sorted(json.loads(text)) for text in history] == [["enqueued", "jid"]] * 2


def test_sidekiq_cron_leaves_a_tick_that_we_took(
    cron: Driver, client: Any, connection: SyncRedis
) -> None:
    """X-CRON-4, X-CRON-8, X-CRON-18: and the reverse."""
    use_layout_1(cron)
    save(connection, cron="* * * * * UTC", options={"queue": "low"})
    save(connection, name="other", cron="* * * * * UTC", options={"queue": "low"})
    client.delete("cron_job:ours:enqueued", "cron_job:other:enqueued")
    look = "Cron.all.each { |j| j.test_and_enque_for_time!(Time.now.utc) }; 0"
    other, mine, _ = ours(connection)
    now = wait_for_the_middle_of_a_minute()
    tick = int(now // 60) * 60
    taken = periodic.Tick(tick, mine.payload(jid="1" * 24, now=now, generation=7))
    assert connection.run(once(periodic.script_tick(KEYS, mine, [taken], now=now))) == [1]
    assert client.llen("queue:low") == 1
    cron.eval(look)
    assert client.llen("queue:low") == 2  # that of the other entry
    assert client.zrange("cron_job:ours:enqueued", 0, -1) == client.zrange(
        "cron_job:other:enqueued", 0, -1
    )
    again = periodic.Tick(tick, other.payload(jid="2" * 24, now=now, generation=7))
    assert connection.run(once(periodic.script_tick(KEYS, other, [again], now=now))) == [0]
    assert client.llen("queue:low") == 2


def use_layout_1(cron: Driver) -> None:
    """Let Ruby write an entry, whose layout we then write as well. [X-CRON-2]"""
    cron.eval('Cron.create(name: "theirs", cron: "0 5 1 1 * UTC", class: "EchoJob")')


def wait_for_the_middle_of_a_minute() -> float:
    """Return the time when no minute ends or begins within the next seconds."""
    wait_until(lambda: 3 < time.time() % 60 < 50, 20, "the middle of a minute")
    return time.time()


def test_each_tick_once_beside_sidekiq_cron(server_factory: ServerFactory, server: Server) -> None:
    """X-CRON-17, X-CRON-18: clocks apart and processes killed; `tests.chaos.periodic` is longer."""
    require_cron()
    account = run(
        server,
        server_factory(),
        seconds=75,
        entries=20,
        gems=1,
        workers=2,
        seed=3,
        lead=10,
        every=7,
    )
    assert account.expected >= 6
    assert account.missing == []
    assert account.doubled == []
    assert len(account.lost) <= 20 * account.kills["sidekiq-cron"]


@pytest.mark.parametrize("lead", [20, -20])
def test_the_clock_of_redis_decides(
    server_factory: ServerFactory, server: Server, tmp_path: Path, lead: float
) -> None:
    """X-CRON-21: a worker 20 s ahead takes no tick early, and one 20 s behind takes none late."""
    require_cron()
    admin = server.client()
    key = "cron_job:default:seconds"
    payload = {"retry": True, "queue": "seconds", "class": "EchoJob", "args": []}
    admin.sadd("cron_jobs:default", key)
    entry = {"name": "seconds", "klass": "EchoJob", "cron": "* * * * * * UTC", "args": "[]"}
    entry |= {"status": "enabled", "message": json.dumps(payload), "namespace": "default"}
    admin.hset(key, mapping=entry)

    def age() -> float | None:
        """Return the age of the newest tick by the clock of the server; negative if early."""
        newest = admin.zrange(f"{key}:enqueued", -1, -1, withscores=True)
        now, _ = admin.time()
        return float(now - newest[0][1]) if newest else None

    def has_more(ticks: int) -> bool:
        return bool(admin.zcard(f"{key}:enqueued") > ticks)

    fleet = Fleet(server.url, server_factory().url, tmp_path)
    fleet.start_worker("worker", lead)
    try:
        for _ in range(4):
            before = admin.zcard(f"{key}:enqueued")
            wait_until(partial(has_more, before), 60, "another tick")
            found = age()
            assert found is not None
            assert found >= 0
        wait_until(lambda: 0 <= (age() or 0) < 10, 60, "a tick in time")
    finally:
        fleet.close()
