"""Each action by its keys, for each role: done and in the journal, or refused."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import pytest
import redis

from harness.servers import Server
from jobwire import App
from jobwire.console.ops.roles import permits
from jobwire.inspect import PeriodicEntry, PeriodicJobs
from jobwire.ops import LOWEST_ROLE, ROLES, Action, Operations
from tests.integration.top.driving import PERSON, Driver, driving
from tests.samples import AT, DUE, failure, payload
from tests.workers import running


def fill(server: Server) -> None:
    """Put jobs of every kind into a Redis."""
    client = server.client()
    client.sadd("queues", "mails", "halted")
    client.sadd("jobwire:paused", "halted")
    client.lpush("queue:mails", *(payload("MailJob", f"q{n}") for n in range(3)))
    client.zadd("retry", {payload("RetriedJob", f"r{n}", **failure()): DUE + n for n in range(3)})
    client.zadd("schedule", {payload("LaterJob", f"s{n}"): DUE + n for n in range(3)})
    client.zadd("dead", {payload("DeadJob", f"d{n}", **failure()): AT + n for n in range(3)})
    client.zadd("jobwire:unreadable", {b"[1]": AT})
    with PeriodicJobs(server.url) as jobs:
        for name in ("nightly", "halted"):
            jobs.save(PeriodicEntry(name=name, cron="0 3 * * *", job="A"))
        jobs.disable(next(job for job in jobs.all() if job.entry.name == "halted"))
    with Operations(server.url, person="eve", role="admin") as operations:
        operations.delete(next(iter(operations.inspector.entries("dead"))))


Step = Callable[[Driver], Awaitable[None]]


def at(screen: str, *keys: str) -> Step:
    """Press a key on a screen, and answer the questions with the others."""

    async def step(drive: Driver) -> None:
        await drive.open(screen)
        await drive.press(keys[0])
        for key in keys[1:]:
            await answer(drive, key)

    return step


async def _reschedule(drive: Driver) -> None:
    await drive.open("5")
    await drive.press("t")
    await line(drive, "2h")


async def _pause(drive: Driver) -> None:
    await drive.open("2")
    await drive.until(lambda: any(row[0] == "mails" for row in drive.rows))
    while drive.data_screen.query_one("Rows").current != "mails":  # type: ignore[attr-defined]
        await drive.press("down")
    await drive.press("p")


async def _unpause(drive: Driver) -> None:
    await drive.open("2")
    await drive.until(lambda: any(row[0] == "halted" for row in drive.rows))
    await drive.press("home", "up", "up", "up", "up")
    while drive.data_screen.query_one("Rows").current != "halted":  # type: ignore[attr-defined]
        await drive.press("down")
    await drive.press("p")


async def _cancel(drive: Driver) -> None:
    await drive.open("5")
    await drive.press("enter")
    await drive.sees("Job s0", "place")
    await drive.press("e")
    await answer(drive, "y")


async def _mark(drive: Driver) -> None:
    await drive.open("1")
    await drive.press("m")
    await line(drive, "v7")


def signal(key: str) -> Step:
    async def step(drive: Driver) -> None:
        await drive.open("3")
        await drive.until(lambda: drive.rows)
        await drive.press(key)
        await answer(drive, "y")

    return step


def periodic(name: str, *keys: str) -> Step:
    async def step(drive: Driver) -> None:
        await drive.open("i")
        await drive.until(lambda: len(drive.rows) == 2)
        rows = [row[0] for row in drive.rows]
        await drive.press("home", *["down"] * rows.index(name), keys[0])
        for key in keys[1:]:
            await answer(drive, key)

    return step


async def _undo(drive: Driver) -> None:
    await drive.open("0")
    await drive.until(lambda: drive.rows)
    await drive.press("u")
    await answer(drive, "y")


async def answer(drive: Driver, key: str) -> None:
    """Answer a question, if one is asked."""
    await drive.until(lambda: drive.app.screen is not drive.data_screen or drive.messages)
    await drive.press(key)


async def line(drive: Driver, text: str) -> None:
    """Answer a question for a line, if one is asked."""
    await drive.until(lambda: drive.app.screen is not drive.data_screen or drive.messages)
    if drive.app.screen is not drive.data_screen:
        await drive.write(text)


IN_THE_GATE = "retry", "pause"

STEPS: dict[Action, Step] = {
    "retry": at("4", "r"),
    "add_to_queue": at("5", "a"),
    "kill": at("4", "k", "y"),
    "delete": at("6", "x", "y"),
    "reschedule": _reschedule,
    "pause": _pause,
    "unpause": _unpause,
    "cancel": _cancel,
    "mark_deploy": _mark,
    "quiet": signal("Q"),
    "dump": signal("D"),
    "stop": signal("S"),
    "undo": _undo,
    "clear": at("4", "C", "y"),
    "enable_periodic": periodic("halted", "p"),
    "disable_periodic": periodic("nightly", "p"),
    "enqueue_periodic": periodic("nightly", "a"),
    "remove_periodic": periodic("nightly", "x", "y"),
}
# A schedule comes from a file or an application; parked jobs, locks and batches have no
# screen.
NO_KEYS = {"load_periodic", "migrate_periodic", "unpark", "unlock", "cancel_batch"}


# Actions that share the key of another one.
ONE_KEY: dict[Action, Action] = {"unpause": "pause", "enable_periodic": "disable_periodic"}


@contextmanager
def process(server: Server, act: Action, signals: list[str]) -> Iterator[None]:
    """Run a worker, if the action is about one."""
    if act not in ("quiet", "dump", "stop"):
        yield
        return
    with running(App(), server, signals=signals, queues={"nothing": 0}):
        yield


EFFECTS: dict[Action, Callable[[Server, list[str]], object]] = {
    "retry": lambda server, _: counts(server) == (2, 3, 2, 4),
    "add_to_queue": lambda server, _: counts(server) == (3, 2, 2, 4),
    "kill": lambda server, _: counts(server) == (2, 3, 3, 3),
    "delete": lambda server, _: counts(server) == (3, 3, 1, 3),
    "reschedule": lambda server, _: (
        abs(server.client().zrange("schedule", 0, 0, withscores=True)[0][1] - time.time() - 7200)
        < 120
    ),
    "pause": lambda server, _: server.client().sismember("jobwire:paused", "mails"),
    "unpause": lambda server, _: not server.client().sismember("jobwire:paused", "halted"),
    "cancel": lambda server, _: counts(server) == (3, 2, 2, 3),
    "mark_deploy": lambda server, _: [*server.client().scan_iter("*-marks")],
    "quiet": lambda _, signals: signals == ["TSTP"],
    "dump": lambda _, signals: signals == ["TTIN"],
    "stop": lambda _, signals: signals == ["TERM"],
    "undo": lambda server, _: counts(server) == (3, 3, 3, 3),
    "clear": lambda server, _: counts(server) == (0, 3, 2, 3),
    "enable_periodic": lambda server, _: status(server, "halted") == b"enabled",
    "disable_periodic": lambda server, _: status(server, "nightly") == b"disabled",
    "enqueue_periodic": lambda server, _: server.client().llen("queue:default") == 1,
    "remove_periodic": lambda server, _: status(server, "nightly") is None,
}


def status(server: Server, name: str) -> bytes | None:
    """Return the status of a periodic job."""
    found: bytes | None = server.client().hget(f"cron_job:default:{name}", "status")
    return found


def counts(server: Server) -> tuple[int, int, int, int]:
    """Return the sizes of retry set, scheduled set, dead set and queue."""
    client = server.client()
    sets = (client.zcard(name) for name in ("retry", "schedule", "dead"))
    return (*sets, client.llen("queue:mails"))


def entries(server: Server) -> list[tuple[str, str]]:
    with Operations(server.url) as operations:
        return [(entry.person, entry.act) for entry in operations.journal()]


@pytest.mark.process
@pytest.mark.parametrize(
    "act",
    [a if a in IN_THE_GATE else pytest.param(a, marks=pytest.mark.matrix) for a in STEPS],
)
def test_an_act_is_done_for_those_who_may_and_refused_to_others(
    server: Server, act: Action
) -> None:
    fill(server)
    before = entries(server)
    signals: list[str] = []

    async def scenario() -> None:
        for role in ROLES:
            async with driving(server, role=role) as drive:
                await STEPS[act](drive)
                if not permits(role, act):
                    await drive.until(lambda: drive.messages)
                    key = ONE_KEY.get(act, act)
                    assert drive.messages[-1].startswith(f"{key} needs the role"), role
                    assert entries(server) == before
                    assert not EFFECTS[act](server, signals)
                    continue
                await drive.until(lambda: EFFECTS[act](server, signals))
                await drive.until(lambda: (PERSON, act) in entries(server))
                return

    with process(server, act, signals):
        asyncio.run(scenario())


def test_every_act_has_a_key() -> None:
    """A new action without keys and an expected effect fails here."""
    assert set(STEPS) == set(EFFECTS) == set(LOWEST_ROLE) - NO_KEYS


def whole(client: redis.Redis) -> dict[bytes, bytes | None]:
    """Return all keys with their values."""
    return {key: client.dump(key) for key in client.scan_iter()}


READING = {
    *("auth", "client", "hello", "info", "ping", "time", "select", "command", "config", "scan"),
    *("get", "mget", "exists", "type", "strlen", "getrange", "llen", "lindex", "lrange", "zcard"),
    *("zrange", "zscore", "zmscore", "zrank", "zrevrank", "zcount", "zscan", "scard", "smembers"),
    *("sismember", "smismember", "sscan", "hget", "hmget", "hgetall", "hlen", "hscan", "hexists"),
    *("hstrlen", "xrange", "xrevrange", "xlen", "ttl", "pttl", "memory", "acl", "dbsize"),
}
TRIED = {"multi", "discard", "exec"}  # the doctor tries writes, which it never executes
TABS = "12345678" + "0cd9"


@pytest.mark.process
def test_a_viewer_writes_nothing_in_a_crawl(server: Server) -> None:
    """All tabs, and all keys that a viewer sees: the server counts no command that writes."""
    fill(server)
    client = server.client()

    async def scenario() -> None:
        # Screens are read, and drawn, only when that is asked for: each twice.
        async with driving(server, role="viewer", interval=3_600.0, toasts=False) as drive:
            for tab in TABS:
                await drive.open(tab)
                if tab != "9":  # where the keys go into the line
                    await drive.read()
                    await drive.press(*"rakxtRAKXCQSDum")
                    assert drive.app.screen is drive.data_screen, "no question was asked"
            await drive.press("escape")
            await drive.open("4")
            await drive.press("enter")
            await drive.sees("Job r0")
            await drive.press(*"rakxte")

    before = whole(client)
    client.config_resetstat()
    asyncio.run(scenario())
    used = {name.removeprefix("cmdstat_").partition("|")[0] for name in client.info("commandstats")}
    assert used - READING - TRIED == set()
    assert whole(client) == before
