"""Many processes and entries: counts after an outage, commands of an idle process, lateness."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire.connection.sync import SyncRedis
from jobwire.periodic.schedule import load
from jobwire.protocol.keys import Keys
from jobwire.protocol.periodic_entry import PeriodicEntry, tick_member
from jobwire.worker.background.periodic import PeriodicThread
from tests.workers import brisk, environment

pytestmark = pytest.mark.process

HOUR = 3_600
RULES = ("none", "last", "all", "all:2")


def entry(name: str, cron: str, **more: Any) -> PeriodicEntry:
    return PeriodicEntry(name=name, cron=cron, job="EchoJob", **more)


def load_into(server: Server, *entries: PeriodicEntry) -> Any:
    """Load the entries; return a client."""
    with closing(SyncRedis(server.url)) as redis:
        redis.run(load(Keys(), entries, schedule=""))
    return server.client(decode_responses=True)


@contextmanager
def looking(server: Server, **more: Any) -> Iterator[PeriodicThread]:
    """Run the thread of a worker."""
    redis = SyncRedis(server.url)
    thread = PeriodicThread(redis, Keys(), **{"generation": lambda: 8, **more})
    thread.start()
    try:
        yield thread
    finally:
        thread.close(timeout=60)
        redis.close()


def pushes(client: Any, name: str) -> int:
    return int(client.llen(f"cron_job:default:{name}:jid_history"))


def asleep_for_three_hours(server: Server) -> Any:
    """Write an hourly entry for each rule, whose last tick was taken more than three hours ago.

    Return a client. The ticks are ten minutes or more away from now, so that none comes meanwhile.
    """
    minute = (int(time.time()) // 60 + 30) % 60
    entries = [entry(rule, f"{minute} * * * * UTC", catch_up=rule) for rule in RULES]
    client = load_into(server, *entries)
    latest = (int(time.time()) // 60 + 30) * 60 - HOUR
    for rule in RULES:
        client.delete(f"cron_job:default:{rule}:enqueued")
        client.zadd(f"cron_job:default:{rule}:enqueued", {"before": latest - 3 * HOUR})
    return client


def test_counts_after_three_hours_with_fifty_processes(server: Server) -> None:
    """X-CRON-18, X-CRON-24, X-CRON-25: all of them start at once."""
    client = asleep_for_three_hours(server)
    subprocess.run(
        [sys.executable, "-m", "tests.periodic_fleet", server.url, "50", "5"],
        env=environment(),
        check=True,
        timeout=300,
    )
    assert {rule: pushes(client, rule) for rule in RULES} == {
        **{"none": 0, "last": 1, "all": 3, "all:2": 2}
    }
    assert client.llen("queue:default") == 6


def test_a_latest_tick_that_was_taken_hides_no_earlier_one(server: Server) -> None:
    """X-CRON-15: a process that has just started takes the latest tick only; another the rest."""
    client = load_into(server, entry("often", "* * * * * * UTC"))
    ticks = "cron_job:default:often:enqueued"
    with looking(server):
        wait_until(lambda: client.zcard(ticks) >= 3, 60, what="the first ticks")
        client.execute_command("CLIENT", "PAUSE", 2_500, "ALL")
        taken = client.zrange(ticks, -1, -1, withscores=True)[0][1]
        # As if by a process that starts now, which looks before the one that waited.
        newest = int(time.time())
        client.zadd(ticks, {tick_member(newest): newest})
        wait_until(lambda: client.zscore(ticks, tick_member(newest + 2)), 60, what="later ticks")
    # The first is of `load`. Ticks between it and the start of the thread are for no process.
    scores = [int(score) for _, score in client.zrange(ticks, 1, -1, withscores=True)]
    assert scores == list(range(scores[0], scores[-1] + 1)), (taken, newest)


def test_an_entry_that_redis_refuses_holds_up_no_other(server: Server) -> None:
    """X-CRON-15: also if it comes first, and is tried again all the time."""
    line = "* * * * * * UTC"
    client = load_into(server, entry("a", line, overlap="skip"), entry("b", line))
    client.set("cron_job:default:a:jid_history", "not a list")
    with looking(server):
        wait_until(lambda: pushes(client, "b") >= 3, 60, what="the ticks of the other")
        client.delete("cron_job:default:a:jid_history")
        wait_until(lambda: pushes(client, "a") >= 1, 60, what="a tick of the first")


def test_an_idle_process_is_quiet(server: Server) -> None:
    """A5 of the acceptance: at most 4 commands a minute for 1,000 entries, measured over looks.

    The looks are ten times as frequent as in a worker, and the count is for so many of them.
    """
    entries = [entry(f"entry {number}", "0 0 1 1 * UTC") for number in range(1_000)]
    client = load_into(server, *entries)
    looks: list[float] = []

    def count(*, jitter: float) -> float:
        looks.append(time.monotonic())
        return (24.0 + 24.0 * jitter) / 10

    def commands() -> int:
        stats = client.info("commandstats")
        names = ("cmdstat_evalsha", "cmdstat_time", "cmdstat_zrange", "cmdstat_script|load")
        return sum(int(stats[name]["calls"]) for name in names if name in stats)

    with looking(server, timings=brisk(periodic_look=count)):
        wait_until(lambda: len(looks) >= 2, 60, what="the first looks")
        before, seen = commands(), len(looks)
        wait_until(lambda: len(looks) >= seen + 6, 120, what="six more looks")
        sent = commands() - before
        made = len(looks) - seen
    # A look is the script, and the time of the server. A worker looks every 36 s on average.
    assert sent <= 2 * made + 2
    assert sent / made * 60 / 36 <= 4


def test_a_heartbeat_puts_a_look_off_while_nothing_changes(server: Server) -> None:
    """X-CRON-21: it compares the clocks as well. A change is left to the look of the thread."""
    client = load_into(server, entry("new year", "0 0 1 1 * UTC"))
    with closing(SyncRedis(server.url)) as redis, looking(server) as thread:
        wait_until(lambda: thread._look_at > 0, 60, what="the first look")

        def look_with_heartbeat() -> tuple[float, float]:
            """Return when the next look is due, before and after; it is due soon before."""
            thread._look_at = due = time.monotonic() + 10
            for _, look in thread.looks:
                redis.run(look())
            return due, thread._look_at

        thread._clock_offset = 0.0
        due, again = look_with_heartbeat()
        assert again > due
        assert abs(thread._now() - time.time()) < 60
        client.hset("cron_job:default:new year", "status", "disabled")
        due, again = look_with_heartbeat()
        assert again == due
        client.hset("cron_job:default:new year", "status", "enabled")
        thread.close(timeout=60)
        thread._clock_offset = 0.0
        due, again = look_with_heartbeat()
        assert (again, thread._clock_offset) == (due, 0.0)


@pytest.mark.full
def test_99_of_100_ticks_are_on_time_on_a_quiet_machine(server: Server) -> None:
    """A5 of the acceptance: ten ticks a second for two minutes, 99 % of them within 50 ms."""
    lines = [entry(f"e{n}", "* * * * * * UTC", date_as_argument=True) for n in range(10)]
    client = load_into(server, *lines)
    with looking(server):
        wait_until(lambda: client.llen("queue:default") >= 1_200, 180, what="1,200 ticks")
    late = sorted(json.loads(text)["args"][0] % 1 for text in client.lrange("queue:default", 0, -1))
    half, most = late[len(late) // 2], late[len(late) * 99 // 100]
    figures = f"{len(late)} ticks: median {half * 1000:.1f} ms, p99 {most * 1000:.1f} ms late"
    logging.getLogger(__name__).info(figures)  # shown by -o log_cli=true -o log_cli_level=INFO
    assert most < 0.05, figures


def test_no_tick_is_pushed_before_its_instant(server: Server) -> None:
    """X-CRON-22, by the clock that the server shares. How late they are: the test above."""
    client = load_into(server, entry("often", "* * * * * * UTC", date_as_argument=True))
    with looking(server):
        wait_until(lambda: client.llen("queue:default") >= 12, 60, what="twelve ticks")
    pushed = sorted(json.loads(text)["args"][0] for text in client.lrange("queue:default", 0, -1))
    ticks = [
        instant
        for _, instant in client.zrange("cron_job:default:often:enqueued", 0, -1, withscores=True)
    ]
    early = [pair for pair in zip(ticks[-len(pushed) :], pushed, strict=True) if pair[1] < pair[0]]
    assert early == []
