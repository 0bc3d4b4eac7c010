"""Limits: so many jobs at once, or in a time, by slots and times in Redis. [X-LIMIT-1]"""

from __future__ import annotations

import asyncio
import json
import random
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from harness.servers import Server, wait_until
from jobwire import App, InvalidJob, Limit, Snooze, testing
from jobwire.connection.sync import SyncRedis
from jobwire.errors import ConfigError
from jobwire.inspect import AsyncInspector, Inspector
from jobwire.protocol import limits
from jobwire.protocol.keys import Keys
from jobwire.protocol.limits import (
    LimitOfJob,
    limit_of,
    script_window,
)
from jobwire.protocol.wire import Batch, command, once
from jobwire.web import Visitor, WebApp, hide_arguments
from tests.integration.clients import push_job
from tests.workers import Workers, brisk, running

FETCH = pytest.mark.parametrize("fetch", ["reliable", "basic"])
HELD = "jobwire:limit:api:held"
SCRIPT = """
local inside = redis.call("INCRBY", KEYS[1], ARGV[1])
if inside > tonumber(redis.call("GET", KEYS[2]) or 0) then redis.call("SET", KEYS[2], inside) end
"""


class Ledger:
    """Jobs write here how many of them run, and in which order they started."""

    def __init__(self, server: Server) -> None:
        self.client: Any = server.client()

    def enter(self, number: object, cost: int = 1) -> None:
        self.client.eval(SCRIPT, 2, "inside", "most", cost)
        self.client.rpush("order", str(number))

    def leave(self, cost: int = 1) -> None:
        self.client.decrby("inside", cost)

    @property
    def most(self) -> int:
        return int(self.client.get("most"))

    @property
    def order(self) -> list[str]:
        return [each.decode() for each in self.client.lrange("order", 0, -1)]


def clean(client: Any) -> bool:
    """Return whether nothing is left of the limit and its jobs."""
    return not client.exists("schedule", "queue:default", "retry") and not client.keys(
        "jobwire:limit:*"
    )


@FETCH
def test_no_more_than_the_limit_run_at_once(server: Server, fetch: str) -> None:
    """X-LIMIT-3, X-LIMIT-5, X-LIMIT-6: in two workers, without a retry, each job once."""
    ledger = Ledger(server)

    def make() -> App:
        app = App()

        @app.job(name="Call", limit=Limit("api", at_once=3))
        def call(number: int) -> None:
            ledger.enter(number)
            time.sleep(0.01)
            ledger.leave()

        return app

    apps = [make(), make()]
    with ExitStack() as stack:
        for app in apps:
            stack.enter_context(running(app, server, fetch=fetch, concurrency=5))
        apps[0].jobs["Call"].enqueue_bulk([[number] for number in range(60)])
        wait_until(lambda: len(ledger.order) >= 60, what="the jobs")
        wait_until(lambda: clean(ledger.client), what="the slots to be free")
    assert ledger.most == 3
    assert sorted(map(int, ledger.order)) == list(range(60))
    assert ledger.client.get("stat:processed") == b"60"
    assert ledger.client.get("stat:failed") in (None, b"0")
    assert not ledger.client.exists("dead")


class Holding:
    """A job `Call` that holds its slot until the test lets it go."""

    def __init__(self, server: Server, limit: Limit, **options: Any) -> None:
        self.app = App()
        self.begun: list[object] = []
        self.goes_on = threading.Event()
        self.call: Any = self.app.job(name="Call", limit=limit, **options)(self.run)
        self.client: Any = server.client()

    def run(self, number: int, cost: int = 1) -> None:
        self.begun.append(number)
        while not self.goes_on.is_set():
            time.sleep(0.01)  # an interruption waits until code of `threading` has left

    def _more_than(self, known: int) -> bool:
        waiting: int = self.client.zcard("schedule")
        return len(self.begun) + waiting > known

    def fill(self, *numbers: int) -> None:
        """Enqueue jobs one after the other, each when the one before runs or waits."""
        for number in numbers:
            before = len(self.begun) + self.client.zcard("schedule")
            self.call.enqueue(number)
            wait_until(
                partial(self._more_than, before),
                what=f"job {number} to run or wait",
            )


def test_jobs_weigh_as_much_as_they_say(server: Server) -> None:
    """X-LIMIT-3, X-LIMIT-7: a light job does not overtake a heavy one that waits."""
    holding = Holding(server, Limit("api", at_once=3, cost=lambda number, cost=1: cost))
    call = holding.call
    with running(holding.app, server, concurrency=5):
        holding.fill(0)
        call.enqueue(1, 3)
        wait_until(lambda: holding.client.zcard("schedule") == 1, what="the heavy job to wait")
        call.enqueue(2)
        wait_until(lambda: holding.client.zcard("schedule") == 2, what="the light job to wait")
        assert holding.begun == [0]
        holding.goes_on.set()
        wait_until(lambda: len(holding.begun) == 3, what="the jobs")
        wrong = "cost returned 4; expected a whole number from 1 to 3"
        with pytest.raises(InvalidJob, match=wrong):
            call.enqueue(1, 4)
    assert holding.begun == [0, 1, 2]


def test_each_key_has_a_limit_of_its_own(server: Server) -> None:
    """X-LIMIT-1, X-LIMIT-2: by the name of a parameter; other jobs share it by the name."""
    holding = Holding(server, Limit("api", at_once=1, by=["number"]))
    holding.app.connect(server.url)
    with running(holding.app, server, concurrency=4):
        push_job(server, "Call", 1, jw_limit={"name": "api", "key": "[1]", "at_once": 1})
        wait_until(lambda: holding.begun == [1], what="the first")
        holding.fill(1, 2)
        assert holding.begun == [1, 2]
        (member,) = holding.client.zrange("schedule", 0, -1)
        assert json.loads(member)["jw_limit"] == {"name": "api", "key": "[1]", "at_once": 1}
        assert holding.client.zcard("jobwire:limits") == 2
        holding.goes_on.set()


def test_a_job_of_another_queue_waits_in_the_same_line(server: Server) -> None:
    """X-LIMIT-7: it becomes due at once, and its scheduler does the rest."""
    holding = Holding(server, Limit("api", at_once=1))
    with running(holding.app, server, queues={"default": 0, "low": 0}, concurrency=4):
        holding.fill(0)
        holding.call.options(queue="low").enqueue(1)
        wait_until(lambda: holding.client.zcard("schedule") == 1, what="the second to wait")
        holding.goes_on.set()
        wait_until(lambda: holding.begun == [0, 1], what="the second")


def test_jobs_that_were_deleted_hold_up_no_other(server: Server) -> None:
    """X-LIMIT-7: however many were in line, deleted by any program."""
    holding = Holding(server, Limit("api", at_once=1))
    holding.app.connect(server.url)
    with running(holding.app, server, concurrency=4):
        holding.fill(0)
        holding.call.enqueue_bulk([[number] for number in range(1, 1_205)])
        wait_until(lambda: holding.client.zcard("schedule") == 1_204, what="all to wait")
        for member in holding.client.zrange("schedule", 0, -1):
            if json.loads(member)["args"][0] <= 1_200:
                holding.client.zrem("schedule", member)
        holding.goes_on.set()
        wait_until(lambda: len(holding.begun) == 5, what="the four that are left")
        assert holding.begun == [0, 1201, 1202, 1203, 1204]
    line = Keys().limit("api", "line")
    assert holding.client.zcount(line, 2**52, "+inf") == holding.client.zcard(line) == 1_200


@FETCH
def test_every_end_of_a_job_frees_its_slot(server: Server, fetch: str) -> None:
    """X-LIMIT-5: failure, death, snooze, discard, expiry before it; and without delivery again."""
    app = App()
    seen: list[str] = []

    def end(how: str) -> None:
        seen.append(how)
        if how == "snooze":
            raise Snooze(3600)
        if how != "done":
            raise ValueError(how)

    async def task(how: str) -> None:
        end(how)

    limit = Limit("api", at_once=1)
    jobs: list[Any] = [
        app.job(name="Call", limit=limit)(end),
        app.job(name="Task", limit=limit)(task),
        app.job(name="Once", limit=limit, redeliver=False, retry=False)(end),
    ]
    client: Any = server.client()

    def free(count: int) -> bool:
        return len(seen) == count and not client.exists(HELD)

    count = 0
    with running(app, server, fetch=fetch, concurrency=3):
        for job in jobs:
            for how in ("done", "fail", "dead"):
                options: dict[str, Any] = {} if how != "dead" else {"retry": 0}
                if job is jobs[2]:
                    options = {}
                job.options(**options).enqueue(how)
                count += 1
                wait_until(partial(free, count), what=f"{how} to free its slot")
        jobs[0].enqueue("snooze")
        wait_until(partial(free, 10), what="the snooze to free its slot")


def test_a_stop_frees_the_slots_of_jobs_that_are_put_back(server: Server) -> None:
    """X-LIMIT-5: the next worker can run them at once."""
    holding = Holding(server, Limit("api", at_once=1))
    with running(holding.app, server, timeout=0.0, concurrency=2):
        holding.fill(0, 1)
    (slot,) = holding.client.zrange(HELD, 0, -1)
    assert slot.endswith(b":")  # the one of the job that waited
    holding.goes_on.set()
    with running(holding.app, server):
        wait_until(lambda: set(holding.begun) == {0, 1}, what="both jobs")


@pytest.mark.process
def test_a_long_job_keeps_its_slot(server: Server) -> None:
    """X-LIMIT-4: each heartbeat renews its lease; a slot that is not renewed is free."""
    holding = Holding(server, Limit("api", at_once=1))
    timings = brisk(slot_lease=1.5, heartbeat_interval=0.2)
    with running(holding.app, server, timings=timings, concurrency=3):
        holding.fill(0, 1)
        (slot,) = holding.client.zrange(HELD, 0, -1)
        before = holding.client.zscore(HELD, slot)
        wait_until(
            lambda: holding.client.zscore(HELD, slot) > before + 2000, what="renewals", timeout=30
        )
        assert holding.begun == [0]
        holding.goes_on.set()
        wait_until(lambda: holding.begun == [0, 1], what="the second")
    holding.client.zadd(HELD, {"1:gone:x": 1})
    with running(holding.app, server):
        holding.fill(2)
        assert holding.begun[-1] == 2


def test_an_unknown_limit_stops_no_job(server: Server) -> None:
    """X-LIMIT-2: a wrong value is ignored; a key of another type makes the job wait."""
    app = App()
    ran: list[int] = []
    app.job(name="Call")(ran.append)
    client: Any = server.client()
    client.set(HELD, "x")
    with running(app, server):
        push_job(server, "Call", 1, jw_limit={"name": "other", "at_once": 0})
        push_job(server, "Call", 2, jw_limit="api")
        wait_until(lambda: set(ran) == {1, 2}, what="the jobs")
        push_job(server, "Call", 3, jw_limit={"name": "api", "at_once": 1})
        wait_until(lambda: client.zcard("schedule") == 1, what="the job to be put off")
        client.delete(HELD)
        client.zadd("schedule", {client.zrange("schedule", 0, 0)[0]: 1})
        wait_until(lambda: 3 in ran, what="the third")


APP = """
import time
import redis
from jobwire import App, Limit

app = App()
client = redis.Redis.from_url({url!r})


@app.job(name="Call", limit=Limit("api", at_once=1))
def call(number, seconds):
    client.rpush("order", number)
    time.sleep(seconds)
"""


SHARED = """
import asyncio, time
import redis
from jobwire import App

app = App()
client = redis.Redis.from_url({url!r})
script = {script!r}


def enter(cost):
    client.eval(script, 2, "inside", "most", cost)


def leave(cost):
    client.decrby("inside", cost)
    client.rpush("order", cost)


@app.job(name="Sync")
def sync(cost):
    enter(cost)
    time.sleep(0.02)
    leave(cost)


@app.job(name="Isolated", isolated=True)
def isolated(cost):
    sync(cost)


@app.job(name="Async")
async def asynchronous(cost):
    enter(cost)
    await asyncio.sleep(0.02)
    leave(cost)
"""


@pytest.mark.process
@pytest.mark.timing
def test_a_worker_that_is_killed_frees_its_slot_in_a_minute(
    server: Server, workers: Workers, tmp_path: Path
) -> None:
    """X-LIMIT-4, X-LIMIT-6: its lease ends, and the first in line asks again at that time."""
    (tmp_path / "jobs.py").write_text(APP.format(url=server.url))
    client: Any = server.client()
    first = workers.start("jobs:app", "--redis", server.url)
    app = App()
    app.connect(server.url)
    limit = Limit("api", at_once=1)
    app.client.push("Call", [0, 600], limit=limit)
    wait_until(lambda: client.llen("order") == 1, what="the first job")
    app.client.push("Call", [1, 0], limit=limit)
    wait_until(lambda: client.zcard("schedule") == 1, what="the second job to wait")
    workers.start("jobs:app", "--redis", server.url)
    first.kill()
    killed = time.monotonic()
    wait_until(lambda: client.lrange("order", 1, 1) == [b"1"], 90, what="the second job")
    assert 20 < time.monotonic() - killed < 65
    app.close()


def now(client: Any) -> int:
    """Return the microsecond of the server's clock."""
    seconds, micros = client.time()
    return int(seconds * 1_000_000 + micros)


@pytest.mark.timing
@pytest.mark.parametrize(
    ("limit", "earliest"),
    [
        (Limit("api", rate=100, burst=20), lambda number: (number - 19) * 10_000),
        (Limit("api", window=50, per=0.5), lambda number: number // 50 * 500_000),
    ],
    ids=["rate", "window"],
)
@FETCH
def test_a_rate_is_kept(
    server: Server, fetch: str, limit: Limit, earliest: Callable[[int], int]
) -> None:
    """X-LIMIT-8 to X-LIMIT-11: in two workers, no more than it gives, in order, none is lost."""
    client: Any = server.client()

    def make() -> App:
        app = App()

        @app.job(name="Call", limit=limit)
        def call(number: int) -> None:
            client.rpush("starts", now(client))
            client.rpush("order", number)

        return app

    apps = [make(), make()]
    count = 200
    with ExitStack() as stack:
        for app in apps:
            stack.enter_context(running(app, server, fetch=fetch, concurrency=5))
        before = now(client)
        apps[0].jobs["Call"].enqueue_bulk([[number] for number in range(count)])
        wait_until(lambda: client.llen("order") == count, what="the jobs")
        wait_until(lambda: clean(client), what="the bucket to be full")
    starts = sorted(map(int, client.lrange("starts", 0, -1)))
    for number, start in enumerate(starts):
        assert start >= before + earliest(number)
    order = list(map(int, client.lrange("order", 0, -1)))
    assert max(abs(place - number) for place, number in enumerate(order)) < 60
    assert client.get("stat:processed") == b"%d" % count
    assert not client.exists("retry", "dead")


def test_no_window_sees_more_starts_than_the_limit(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X-LIMIT-10, X-LIMIT-11: by the times of the steps; few others overtake a job that waits."""
    monkeypatch.setattr(limits, "LATE_S", 60)  # a slow machine must not make a job lose its place
    keys, limit = Keys(), LimitOfJob("api", window=6, per=0.1)
    started: dict[str, tuple[int, int, int]] = {}  # time, number, cost

    def ask(asker: int) -> None:
        dice = random.Random(asker)
        due = [(0.0, f"{asker}-{job}", dice.randint(1, 3)) for job in range(15)]
        redis = redises[asker]
        while due:
            at, jid, cost = heappop(due)
            while at + dice.random() * 0.02 > time.monotonic():
                time.sleep(0.001)
            step = script_window(keys, msgspec.structs.replace(limit, cost=cost), jid)
            entries = command("ZRANGE", keys.limit("api", "starts"), 0, -1, "WITHSCORES")
            wait, found = redis.run(once(Batch([step, entries], atomic=True)))
            if wait:
                heappush(due, (time.monotonic() + wait / 1e6, jid, cost))
                continue
            pairs = zip(found[::2], found[1::2], strict=True)
            (own,) = (pair for pair in pairs if re.fullmatch(rb"\d:\d+:%b" % jid.encode(), pair[0]))
            started[jid] = int(own[0].split(b":")[1]), int(own[1]), cost

    with ExitStack() as stack:
        redises = [stack.enter_context(closing(SyncRedis(server.url))) for _ in range(8)]
        list(stack.enter_context(ThreadPoolExecutor(8)).map(ask, range(8)))
    assert len(started) == 120
    for at, number, cost in started.values():
        others = [one for one in started.values() if at - 100_000 < one[0] <= at]
        assert sum(one[2] for one in others) <= 6
        assert all(
            one[0] <= at - 100_000 for one in started.values() if one[1] <= number + cost - 7
        )


def test_a_reserved_time_that_is_past_is_not_used(server: Server) -> None:
    """X-LIMIT-9: a job that comes later than the bucket fills asks anew."""
    app = App()
    ran: list[int] = []
    app.job(name="Call", limit=Limit("api", rate=1, per=3600))(ran.append)
    client: Any = server.client()
    with running(app, server):
        app.jobs["Call"].enqueue_bulk([[0], [1]])
        wait_until(lambda: ran and client.zcard("schedule") == 1, what="the second to wait")
        (member,) = client.zrange("schedule", 0, -1)
        assert 3590 < client.zscore("schedule", member) - time.time() < 3601
        assert json.loads(member)["args"] == [1]
        jid = json.loads(member)["jid"]
        client.zadd("schedule", {member: 1})  # too early
        wait_until(lambda: client.zrange("schedule", 0, -1) not in ([], [member]), what="the wait")
        assert ran == [0]
        client.zadd("jobwire:limit:api:line", {jid: 5})  # too late
        before = int(client.get("jobwire:limit:api:full"))
        client.zadd("schedule", {client.zrange("schedule", 0, 0)[0]: 1})
        wait_until(lambda: client.zscore("jobwire:limit:api:line", jid) > 5, what="a new time")
        assert int(client.get("jobwire:limit:api:full")) == before + 3_600_000_000
        client.zadd("jobwire:limit:api:line", {jid: time.time() * 1e6 - 1})  # in time
        wait_until(lambda: client.zcard("schedule") == 1, what="the wait")
        client.zadd("schedule", {client.zrange("schedule", 0, 0)[0]: 1})
        wait_until(lambda: ran == [0, 1], what="the second")


@pytest.mark.process
def test_eight_processes_keep_a_limit(server: Server, workers: Workers, tmp_path: Path) -> None:
    """X-LIMIT-3, X-LIMIT-7: sync, asyncio and isolated jobs that share one limit by its name."""
    (tmp_path / "jobs.py").write_text(SHARED.format(url=server.url, script=SCRIPT))
    client: Any = server.client()
    app = App()
    app.connect(server.url)
    limit = Limit("api", at_once=4)
    for number in range(100):
        kind = ("Sync", "Async", "Isolated")[number % 3]
        app.client.push(kind, [1 + number % 2], limit=replace(limit, cost=1 + number % 2))
    app.close()
    for _ in range(2):
        workers.start("jobs:app", "--redis", server.url, "--processes", "4", "-c", "3")
    wait_until(lambda: client.llen("order") == 100, 120, what="the jobs")
    wait_until(lambda: clean(client), what="the slots to be free")
    assert int(client.get("most")) <= 4
    assert client.get("inside") == b"0"


@pytest.mark.parametrize("mode", ["fake", "inline"])
def test_jobs_in_memory_ignore_limits(mode: str) -> None:
    """X-LIMIT-2: they run one after the other; the payload has the limit."""
    app = App()
    ran: list[int] = []
    job: Any = app.job(name="Call", limit=Limit("api", at_once=1))(ran.append)
    if mode == "inline":
        with testing.inline(app):
            job.enqueue(1)
            job.enqueue(2)
    else:
        with testing.fake(app) as jobs:
            job.enqueue(1)
            job.enqueue(2)
            assert [each.get("jw_limit") for each in jobs] == [{"name": "api", "at_once": 1}] * 2
            jobs.perform_one()
            jobs.perform_one()
    assert ran == [1, 2]


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"name": "a b", "at_once": 1},
        {"name": "api"},
        {"name": "api", "at_once": 0},
        {"name": "api", "at_once": 1, "rate": 1},
        {"name": "api", "at_once": True},
        {"name": "api", "at_once": 2, "cost": 3},
        {"name": "api", "rate": 0, "burst": 1},
        {"name": "api", "rate": 1, "burst": 0},
        {"name": "api", "rate": 1, "per": 0, "burst": 1},
        {"name": "api", "at_once": 1, "key": "x" * 101},
        {"name": "api", "window": 1, "per": 0},
        {"name": "api", "window": 10_001},
        {"name": "api", "window": 2, "cost": 3},
        {"name": "api", "window": 1, "rate": 1, "burst": 1},
    ],
)
def test_fields_without_sense_are_no_limit(value: object) -> None:
    """X-LIMIT-2."""
    assert limit_of(value) is None


def test_the_fields_of_a_rate_and_a_window() -> None:
    """X-LIMIT-2."""
    field: dict[str, Any] = {"name": "api", "window": 3, "per": 60, "cost": 2}
    assert limit_of(field) == LimitOfJob("api", window=3, per=60, cost=2)
    field = {"name": "api", "rate": 2.5, "per": 60, "burst": 3, "cost": 2, "new": 1}
    assert limit_of(field) == LimitOfJob("api", rate=2.5, per=60, burst=3, cost=2)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"name": "a b", "at_once": 1}, "name 'a b' is not 1 to 100 letters"),
        ({"name": "api"}, "give one of at_once, rate and window"),
        ({"name": "api", "at_once": 1, "rate": 1}, "give one of at_once, rate and window"),
        ({"name": "api", "window": 1.5}, "window 1.5 is not a whole number from 1 to 10000"),
        ({"name": "api", "window": 2, "cost": 3}, "cost 3 is not a whole number from 1 to 2"),
        ({"name": "api", "at_once": 0}, "at_once 0 is not a whole number from 1 to 10000"),
        ({"name": "api", "rate": 0}, "rate 0 is not a number above 0"),
        ({"name": "api", "rate": True}, "rate True"),
        ({"name": "api", "rate": 1, "per": "minute"}, "per 'minute' is not a number of seconds"),
        ({"name": "api", "rate": 1, "burst": 0}, "burst 0 is not a whole number"),
        ({"name": "api", "at_once": 2, "cost": 3}, "cost 3 is not a whole number from 1 to 2"),
        ({"name": "api", "at_once": 2, "by": "user"}, "limit: by 'user' is not a function"),
    ],
)
def test_limits_without_sense(values: dict[str, Any], problem: str) -> None:
    """X-LIMIT-1: each names the value, the rule and the fix."""
    with pytest.raises(ConfigError, match=problem):
        Limit(**values)


def test_only_a_limit_is_a_limit() -> None:
    """X-LIMIT-1."""
    app = App()
    with pytest.raises(ConfigError, match=r"limit: 5 is not a Limit\(...\)"):
        app.job(name="Call", limit=5)(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(ConfigError, match="limit by 'user' is not a parameter"):
        app.job(name="Call", limit=Limit("api", at_once=1, by=["user"]))(lambda: None)


def test_people_see_who_has_the_slots_of_many_limits(server: Server) -> None:
    """X-LIMIT-3: a page of 1,000 limits by name, with the jobs that have slots; odd data is left
    out.
    """
    client: Any = server.client()
    now = time.time()
    known = [LimitOfJob(f"l{number:04}", at_once=3) for number in range(1_000)]
    client.zadd("jobwire:limits", {limit.text(): now for limit in known} | {b"[": now})
    ends = now * 1000 + 60_000
    slots = {"1:first:t": ends, "1:a:b:t": ends, "1:ended:t": now * 1000 - 1000}
    client.zadd("jobwire:limit:l0500:held", slots)
    with Inspector(server.url) as inspector:
        page = inspector.limit_page(start=499, count=3)
        assert (page.total, page.complete) == (1_000, True)
        assert [one.name for one in page.limits] == ["l0499", "l0500", "l0501"]
        shown = page.limits[1]
        assert (shown.in_use, sorted(shown.holders), shown.free_in) == (2, ["a:b", "first"], 0)
        (found,) = inspector.limit_page(wanted="L0042").limits
        assert found.name == "l0042"
        more = {LimitOfJob(f"m{number}", at_once=3).text(): now for number in range(5_000)}
        client.zadd("jobwire:limits", more)
        assert not inspector.limit_page().complete

    async def main() -> None:
        async with AsyncInspector(server.url) as inspector:
            assert (await inspector.limit_page(wanted="m1")).total == 1_111

    asyncio.run(main())


def test_the_page_of_limits(server: Server) -> None:
    """X-LIMIT-3, X-LIMIT-10: with jobs and next start; a redaction hides the key, which has
    arguments.
    """
    client: Any = server.client()
    now = time.time()
    slots, rate = LimitOfJob("api", at_once=1), LimitOfJob("rows", '["ada"]', rate=1, burst=1)
    client.zadd("jobwire:limits", {slots.text(): now, rate.text(): now})
    client.zadd("jobwire:limit:api:held", {"1:abc:t": now * 1000 + 60_000})
    client.set('jobwire:limit:rows:["ada"]:full', f"{(now + 3600) * 1e6:.0f}")
    window = LimitOfJob("bank", window=5, per=7200)
    client.zadd("jobwire:limits", {window.text(): now})
    starts = {f"2:{(now - 1800) * 1e6:.0f}:a": 0, f"3:{now * 1e6:.0f}:b": 2, "1::c:d": 5}
    client.zadd("jobwire:limit:bank:starts", starts)
    with Inspector(server.url) as inspector:
        (shown,) = inspector.limit_page(wanted="bank").limits
        assert (shown.window, shown.in_use, shown.waiting) == (5, 5, 0)
        assert shown.free_in == pytest.approx(5400, abs=60)
    for redact, key in ((None, True), (hide_arguments, False), (lambda _, fields: fields, False)):
        app = WebApp(server.url, authorize=lambda _: Visitor("ada", "viewer"), redact=redact)
        with closing(app), TestClient(app) as pages:
            text = pages.get("/limits").text
            assert 'href="/jobs/abc"' in text
            assert "when a job ends" in text
            assert "5 in any 2 h" in text
            assert "in 59 min" in text or "in 1 h" in text
            assert ("ada&#34;]" in text) == key
            assert "api" not in pages.get("/limits?name=ROW").text.partition("<table>")[2]
