"""Periodic entries on a real server: reading, writing, and taking ticks."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from harness.servers import Server, wait_until
from jobwire import App, ConfigError
from jobwire.connection.sync import SyncRedis
from jobwire.monitoring import Figures
from jobwire.periodic.planning import due_ticks, line_of
from jobwire.periodic.schedule import completed, load, set_enabled
from jobwire.protocol import periodic
from jobwire.protocol.keys import Keys
from jobwire.protocol.periodic import NotTaken, Tick
from jobwire.protocol.periodic_entry import PeriodicEntry, StoredEntry
from jobwire.protocol.wire import once
from tests.workers import brisk, running

KEYS = Keys()
NOW = 1_770_717_610.25  # 2026-02-10 10:00:10.25
TEN = 1_770_717_600
RECORDED = {
    **{"name": "t", "namespace": "default", "klass": "EchoJob", "cron": "*/5 * * * * UTC"},
    **{"description": "", "source": "dynamic", "args": "[1]", "date_as_argument": "0"},
    "message": '{"retry":true,"queue":"default","class":"EchoJob","args":[1]}',
    **{"status": "enabled", "active_job": "0", "queue_name_prefix": ""},
    **{"queue_name_delimiter": "", "retry": "true", "last_enqueue_time": ""},
    "symbolize_args": "0",
}


def entry(name: str = "t", cron: str = "*/5 * * * * UTC", **more: Any) -> PeriodicEntry:
    return PeriodicEntry(**{"name": name, "cron": cron, "job": "EchoJob", "args": [1], **more})


def only(shell: SyncRedis, name: str = "t") -> StoredEntry:
    """Return the stored entry of a name."""
    (found,) = [each for each in shell.run(periodic.read_entries(KEYS)) if each.name == name]
    return found


def ticks(stored: StoredEntry, *at: int, now: float = NOW) -> list[Tick]:
    return [
        Tick(each, stored.payload(jid=f"{each:024x}", now=now, generation=8, job_id="j"))
        for each in at
    ]


class Counts(NamedTuple):
    """Numbers of ticks that were taken."""

    pushed: int = 0
    skipped: int = 0


def take(shell: SyncRedis, stored: StoredEntry, *at: int, now: float = NOW) -> Counts:
    held = shell.run(periodic.holders(KEYS)) if stored.skips_overlap else ()
    asked = ticks(stored, *at, now=now)
    step = periodic.script_tick(KEYS, stored, asked, now=now, held=held)
    taken = periodic.read_ticked(asked, shell.run(once(step)))
    return Counts(len(taken.pushed), len(taken.skipped))


def saved(server: Server, *entries: PeriodicEntry, schedule: str = "") -> None:
    redis = SyncRedis(server.url)
    redis.run(load(KEYS, entries, schedule=schedule))
    redis.close()


def test_an_entry_has_the_fields_of_sidekiq_cron(server: Server) -> None:
    """X-CRON-1, X-CRON-9, X-CRON-33, X-CRON-35: the bytes of 2.3.1, and fields of our own."""
    saved(server, entry())
    client = server.client(decode_responses=True)
    assert client.smembers("cron_jobs:default") == {"cron_job:default:t"}
    fields = client.hgetall("cron_job:default:t")
    assert {name: fields[name] for name in RECORDED} == RECORDED
    assert fields.keys() - RECORDED.keys() == {"jw_catch_up", "jw_overlap"}
    (member,) = client.zrange("cron_job:default:t:enqueued", 0, -1)
    assert member.endswith(("0:00Z", "5:00Z"))  # X-CRON-35
    assert client.ttl("cron_job:default:t") == -1


def test_layout_1_is_written_where_it_is_in_use(server: Server, shell: SyncRedis) -> None:
    """X-CRON-2, X-CRON-3, X-CRON-33: booleans are words there."""
    client = server.client(decode_responses=True)
    client.sadd("cron_jobs", "cron_job:old")
    client.hset("cron_job:old", mapping={"name": "old", "klass": "A", "cron": "* * * * *"})
    saved(server, entry())
    fields = client.hgetall("cron_job:t")
    assert (fields["active_job"], fields["date_as_argument"]) == ("false", "false")
    assert "namespace" not in fields
    assert client.smembers("cron_jobs") == {"cron_job:old", "cron_job:t"}
    assert {each.name for each in shell.run(periodic.read_entries(KEYS))} == {"old", "t"}
    client.sadd("cron_jobs:default", "cron_job:default:t")
    client.hset("cron_job:default:t", mapping={"name": "t", "klass": "A", "cron": "* * * * *"})
    assert only(shell).layout_namespace == "default"


def test_a_tick_is_taken_once_and_pushed(server: Server, shell: SyncRedis) -> None:
    """X-CRON-4, X-CRON-5, X-CRON-6, X-CRON-8, X-CRON-18, X-CRON-29: the recorded bytes."""
    saved(server, entry())
    stored = only(shell)
    client = server.client(decode_responses=True)
    client.delete("cron_job:default:t:enqueued")
    assert take(shell, stored, TEN) == Counts(1)
    assert take(shell, stored, TEN) == Counts(0)
    assert client.zrange("cron_job:default:t:enqueued", 0, -1, withscores=True) == [
        ("2026-02-10T10:00:00Z", TEN)
    ]
    assert client.lrange("queue:default", 0, -1) == [
        '{"retry":true,"queue":"default","class":"EchoJob","args":[1],'
        f'"jid":"{TEN:024x}","created_at":1770717610250,"enqueued_at":1770717610250}}'
    ]
    assert client.smembers("queues") == {"default"}
    assert client.hget("cron_job:default:t", "last_enqueue_time") == "2026-02-10 10:00:00 +0000"
    assert client.lrange("cron_job:default:t:jid_history", 0, -1) == [
        f'{{"jid":"{TEN:024x}","enqueued":"2026-02-10 10:00:10 UTC"}}'
    ]


@pytest.mark.parametrize(
    "change",
    [
        ("hset", "cron_job:default:t", "status", "disabled"),
        ("hset", "cron_job:default:t", "cron", "*/10 * * * * UTC"),
        ("hset", "cron_job:default:t", "args", "[2]"),
        ("hset", "cron_job:default:t", "jw_overlap", "skip"),
        ("srem", "cron_jobs:default", "cron_job:default:t"),
        ("del", "cron_job:default:t"),
    ],
    ids=lambda change: " ".join(change[:3]),
)
def test_an_entry_that_has_changed_is_not_pushed(
    server: Server, shell: SyncRedis, change: Sequence[str]
) -> None:
    """X-CRON-20: nothing is written, and no key of an entry that has gone is made."""
    saved(server, entry())
    stored = only(shell)
    client = server.client()
    client.execute_command(*change)
    before = {key: client.dump(key) for key in client.scan_iter()}
    with pytest.raises(NotTaken, match="changed"):
        take(shell, stored, TEN)
    assert {key: client.dump(key) for key in client.scan_iter()} == before


def test_fields_of_others_do_not_count_as_a_change(server: Server, shell: SyncRedis) -> None:
    """X-CRON-34: and they stay when the entry is saved."""
    saved(server, entry())
    stored = only(shell)
    client = server.client(decode_responses=True)
    client.hset(
        "cron_job:default:t", mapping={"x": "1", "last_enqueue_time": "2026-02-10 09:00:00 +0000"}
    )
    assert take(shell, stored, TEN) == Counts(1)
    client.hset("cron_job:default:t", "status", "disabled")
    saved(server, entry(args=[2]))
    fields = client.hgetall("cron_job:default:t")
    assert (fields["x"], fields["status"], fields["args"]) == ("1", "disabled", "[2]")
    assert fields["last_enqueue_time"] == "2026-02-10 10:00:00 +0000"


def test_a_queue_that_is_not_a_list_loses_no_tick(server: Server, shell: SyncRedis) -> None:
    """X-CRON-17: the tick is not taken either."""
    saved(server, entry())
    client = server.client()
    client.set("queue:default", "in the way")
    with pytest.raises(NotTaken, match="not a list"):
        take(shell, only(shell), TEN)
    client.delete("queue:default")
    assert take(shell, only(shell), TEN) == Counts(1)


def test_the_tenth_push_and_the_ticks_of_yesterday(server: Server, shell: SyncRedis) -> None:
    """X-CRON-6, X-CRON-23, X-CRON-25: trimmed, and an old tick is not taken again."""
    saved(server, entry())
    client = server.client(decode_responses=True)
    client.delete("cron_job:default:t:enqueued")
    stored = only(shell)
    first = TEN - 12 * 300
    at = range(first, TEN + 1, 300)
    assert take(shell, stored, *at) == Counts(13)
    assert client.llen("cron_job:default:t:jid_history") == 10
    later = TEN + 86_400
    assert take(shell, stored, later, now=later + 1.0) == Counts(1)
    assert client.zcard("cron_job:default:t:enqueued") == 1
    assert take(shell, stored, first, TEN, later, now=later + 2.0) == Counts(0)


def test_ticks_of_days_ago_are_made_up_for_once(server: Server, shell: SyncRedis) -> None:
    """X-CRON-24, X-CRON-25: by two processes that have read the same state."""
    saved(server, entry(cron="0 0 * * * UTC", catch_up="all"))
    client = server.client(decode_responses=True)
    client.delete("cron_job:default:t:enqueued")
    midnight = TEN - 36_000
    client.zadd("cron_job:default:t:enqueued", {"2026-02-05T00:00:00Z": midnight - 5 * 86_400})
    stored = only(shell)
    (newest,) = shell.run(periodic.latest_taken(KEYS, [stored]))
    at = due_ticks(line_of(stored), now=NOW, latest_taken=newest, rule=stored.catch_up)
    assert at == [midnight - day * 86_400 for day in (4, 3, 2, 1, 0)]
    assert take(shell, stored, *at) == Counts(5)
    assert take(shell, stored, *at) == Counts(0)


def test_a_tick_is_skipped_while_the_job_before_is_not_finished(
    server: Server, shell: SyncRedis
) -> None:
    """X-CRON-26: in the queue, in a private hash, in the work of a process of Sidekiq."""
    saved(server, entry(overlap="skip"))
    stored = only(shell)
    client = server.client()
    assert take(shell, stored, TEN) == Counts(1)
    assert take(shell, stored, TEN + 300) == Counts(0, 1)
    payload = client.rpop("queue:default")
    client.sadd("jobwire:owners", "one")
    client.hset("jobwire:private:one", "1:default", payload)
    assert take(shell, stored, TEN + 600) == Counts(0, 1)
    client.delete("jobwire:private:one", "jobwire:owners")
    client.sadd("processes", "two")
    client.hset("two:work", "tid", json.dumps({"payload": payload.decode()}))
    assert take(shell, stored, TEN + 900) == Counts(0, 1)
    client.delete("two:work")
    assert take(shell, stored, TEN + 1200) == Counts(1)


def test_a_load_replaces_its_schedule_and_nothing_else(server: Server, shell: SyncRedis) -> None:
    """X-CRON-38, X-CRON-39: dynamic entries and those of other schedules stay."""
    saved(server, entry("mine"), entry("gone"), schedule="shop")
    saved(server, entry("dynamic"))
    saved(server, entry("theirs"), schedule="other")
    found = shell.run(load(KEYS, [entry("mine"), entry("new")], schedule="shop", dry_run=True))
    assert (found.added, found.removed, found.unchanged) == (["new"], ["gone"], ["mine"])
    assert {each.name for each in shell.run(periodic.read_entries(KEYS))} == {
        *("mine", "gone", "dynamic", "theirs")
    }
    shell.run(load(KEYS, [entry("mine", description="x"), entry("new")], schedule="shop"))
    names = {each.name: each.schedule for each in shell.run(periodic.read_entries(KEYS))}
    assert names == {"mine": "shop", "new": "shop", "dynamic": "", "theirs": "other"}
    client = server.client(decode_responses=True)
    assert client.keys("*gone*") == []
    assert client.hget("cron_job:default:mine", "source") == "dynamic"
    with pytest.raises(ConfigError, match="defined twice"):
        shell.run(load(KEYS, [entry("a"), entry("a")], schedule="shop"))


def test_enabling_writes_the_status_only(server: Server, shell: SyncRedis) -> None:
    """X-CRON-36, X-CRON-37: and ticks of the time before are not made up for."""
    saved(server, entry(enabled=False))
    client = server.client(decode_responses=True)
    stored = only(shell)
    client.hset("cron_job:default:t", "args", "[9]")
    client.delete("cron_job:default:t:enqueued")
    assert shell.run(set_enabled(KEYS, stored, enabled=True)) is True
    assert shell.run(set_enabled(KEYS, stored, enabled=True)) is False
    assert client.zcard("cron_job:default:t:enqueued") == 1
    assert client.hget("cron_job:default:t", "args") == "[9]"
    assert shell.run(periodic.remove(KEYS, stored)) is True
    assert client.keys() == []
    assert shell.run(set_enabled(KEYS, stored, enabled=False)) is None
    assert client.keys() == []


def test_a_push_by_hand_leaves_ticks_alone(server: Server, shell: SyncRedis) -> None:
    """X-CRON-41, X-CRON-42: also of an entry that is disabled."""
    saved(server, entry(enabled=False))
    client = server.client(decode_responses=True)
    stored, before = only(shell), client.zrange("cron_job:default:t:enqueued", 0, -1)
    payload = stored.payload(jid="a" * 24, now=NOW, generation=8)
    shell.run(periodic.run_now(KEYS, stored, payload, now=NOW))
    assert client.zrange("cron_job:default:t:enqueued", 0, -1) == before
    assert client.hget("cron_job:default:t", "last_enqueue_time") == ""
    assert shell.run(periodic.history(KEYS, stored)) == [
        {"jid": "a" * 24, "enqueued": "2026-02-10 10:00:10 UTC"}
    ]
    assert client.llen("queue:default") == 1


def test_migration_keeps_ticks_and_unknown_fields(server: Server, shell: SyncRedis) -> None:
    """X-CRON-3: from layout 1 to layout 2; a name that layout 2 has stays where it is."""
    client = server.client(decode_responses=True)
    for name in ("a", "both"):
        client.sadd("cron_jobs", f"cron_job:{name}")
        fields = {"name": name, "klass": "A", "cron": "* * * * *", "x": "1"}
        client.hset(f"cron_job:{name}", mapping=fields)
    client.zadd("cron_job:a:enqueued", {"2026-02-10T10:00:00Z": TEN})
    client.hset(
        "cron_job:default:both", mapping={"name": "both", "klass": "B", "cron": "0 0 * * *"}
    )
    old = [
        StoredEntry(f"cron_job:{name}", None, client.hgetall(f"cron_job:{name}"))
        for name in ("a", "both")
    ]
    assert shell.run(periodic.migrate(KEYS, old, "default")) == 1
    assert client.smembers("cron_jobs") == {"cron_job:both"}
    assert client.smembers("cron_jobs:default") == {"cron_job:default:a"}
    assert client.zscore("cron_job:default:a:enqueued", "2026-02-10T10:00:00Z") == TEN
    assert client.hget("cron_job:default:a", "x") == "1"
    assert not client.exists("cron_job:a", "cron_job:a:enqueued")


def test_reading_again_costs_one_command(server: Server, shell: SyncRedis) -> None:
    """X-CRON-27: a changed entry is read again, damaged ones are read as they are."""
    saved(server, entry("a"), entry("b"))
    client = server.client()
    client.sadd("cron_jobs:default", "cron_job:default:nothing", "cron_job:default:wrong", b"\xff")
    client.set("cron_job:default:wrong", "in the way")
    known = shell.run(periodic.read_entries(KEYS))
    assert {each.name for each in known} == {"a", "b"}
    client.hset("cron_job:default:b", "message", "not JSON")
    again = shell.run(periodic.read_entries(KEYS, known=known))
    assert {each.name: each.problem for each in again} == {
        "a": "",
        "b": "message is not a JSON object",
    }
    assert [each for each in known if each.name == "a"] == [e for e in again if e.name == "a"]


@pytest.mark.process
def test_workers_enqueue_each_tick_once(server: Server) -> None:
    """X-CRON-18: three workers, a line of each second; each tick has one job."""
    apps = [App(server.url) for _ in range(3)]
    done: list[float] = []
    lock = threading.Lock()
    for app in apps:

        @app.periodic("* * * * * *", date_as_argument=True, queue="often")
        @app.job(name="Often")
        def often(at: float) -> None:
            with lock:
                done.append(at)

    client = server.client(decode_responses=True)
    timings = brisk(periodic_look=lambda jitter: 1.0)
    with (
        running(apps[0], server, queues={"often": 0}, timings=timings) as first,
        running(apps[1], server, queues={"often": 0}, timings=timings) as second,
        running(apps[2], server, queues={"often": 0}, timings=timings) as third,
    ):
        wait_until(lambda: len(done) >= 6, 60, what="six runs")
        launchers = (first, second, third)
    told = sum((each.figures() for each in launchers), Figures()).ticks["Often"]
    assert (told.count, told.failed) == (len(done) + client.llen("queue:often"), 0)
    assert sum(told.buckets) == told.count
    taken = client.zrange("cron_job:default:Often:enqueued", 0, -1, withscores=True)
    # The first member is the claim that comes with a new entry, up to two seconds before a tick.
    assert len(taken) - 1 == len(done) + client.llen("queue:often")
    scores = [score for _, score in taken[1:]]
    assert scores == list(range(int(scores[0]), int(scores[0]) + len(scores)))


def test_completed_lines_have_a_zone() -> None:
    """X-CRON-13: at the end, where sidekiq-cron reads it as well."""
    assert completed(entry(cron="0 3 * * *")).cron == "0 3 * * * UTC"
    assert completed(entry(cron="0 3 * * *"), tz="Europe/Berlin").cron == "0 3 * * * Europe/Berlin"
    assert completed(entry(cron="every day at noon")).cron == "every day at noon on UTC"
    assert completed(entry(cron="@daily Asia/Tokyo")).cron == "@daily Asia/Tokyo"
    with pytest.raises(ConfigError, match="give one of them"):
        completed(entry(cron="@daily Asia/Tokyo"), tz="UTC")


def test_entries_of_another_namespace_are_read_alone(server: Server, shell: SyncRedis) -> None:
    """X-CRON-3: layout 1 belongs to the default namespace."""
    client = server.client(decode_responses=True)
    fields = {"name": "t", "klass": "A", "cron": "* * * * *"}
    client.sadd("cron_jobs", "cron_job:t")
    client.hset("cron_job:t", mapping=fields)
    client.sadd("cron_jobs:shop", "cron_job:shop:t")
    client.hset("cron_job:shop:t", mapping={**fields, "namespace": "shop"})
    (found,) = shell.run(periodic.read_entries(KEYS, "shop"))
    assert found.member == "cron_job:shop:t"


def test_odd_texts_of_a_history_are_left_out(server: Server, shell: SyncRedis) -> None:
    """X-CRON-6: the others are shown."""
    saved(server, entry())
    server.client().lpush("cron_job:default:t:jid_history", "{", "[1]", '{"jid":"a"}')
    assert shell.run(periodic.history(KEYS, only(shell))) == [{"jid": "a"}]


def test_an_entry_with_an_odd_message_moves(server: Server, shell: SyncRedis) -> None:
    """X-CRON-3: its option retry is not known, so the field stays empty."""
    client = server.client(decode_responses=True)
    fields = {"name": "a", "klass": "A", "cron": "* * * * *", "message": "{"}
    client.sadd("cron_jobs", "cron_job:a")
    client.hset("cron_job:a", mapping=fields)
    assert shell.run(periodic.migrate(KEYS, [StoredEntry("cron_job:a", None, fields)], "default"))
    assert client.hget("cron_job:default:a", "retry") == ""
