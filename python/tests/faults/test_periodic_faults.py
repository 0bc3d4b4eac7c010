"""No tick is lost or doubled by any fault at any command of a worker that takes ticks.

The entries have catching-up rules, so the number of their ticks is known whenever the worker looks.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import pytest
import redis

from harness.servers import Reaper, wait_until
from jobwire_conformance.wire.faults import FAULTS, action_of
from jobwire_conformance.wire.points import Point, points_of
from tests.faults import jobs
from tests.faults.runs import ROOT, Bench, Child, label

pytestmark = pytest.mark.matrix

AMPLE = 120.0
WINDOW = 6  # calls of each command that have faults; the others repeat them
DAY = 86_400
# Name of an entry, its line, its rule, the tick that was taken last in days ago, pushes expected.
# Once a day, and not within hours of now: a tick that comes during a run would be one push more.
DAILY = f"0 {(time.gmtime().tm_hour + 12) % 24} * * * UTC"
ENTRIES = (("all", DAILY, "all:3", 9, 3), ("last", DAILY, "last", 9, 1))
PUSHES = sum(entry[-1] for entry in ENTRIES)


class Outcome(NamedTuple):
    """The end of a run, after a healthy worker has done the rest."""

    point: Point | None
    fault: str
    reached: bool
    pushed: int
    ran: int
    loaded: bool
    points: Sequence[Point]
    log: str

    @property
    def problem(self) -> str:
        """The rule that was broken, or `""`."""
        expected = (PUSHES, PUSHES, True)
        found = (self.pushed, self.ran, self.loaded)
        return "" if found == expected else f"{self.point} {self.fault}: {found}\n{self.log}"


class PeriodicRun:
    """A worker that catches up on ticks, with a fault at a point."""

    def __init__(self, point: Point | None = None, fault: str = "") -> None:
        self.point = point
        self.fault = fault

    def __call__(self, bench: Bench) -> Outcome:
        started = threading.Event()
        with bench.server() as server:
            record_url = server.url.removesuffix("/0") + "/1"
            client: Any = redis.Redis.from_url(server.url, decode_responses=True)
            record: Any = redis.Redis.from_url(record_url)
            for path in sorted((ROOT / "lua").glob("*.lua")):
                client.script_load(path.read_bytes())
            _seed(client)
            children: list[Child] = []

            def child(url: str) -> Child:
                settings = {"queues": ["a"], "concurrency": 2, "periodic": True, "timeout": 5.0}
                children.append(
                    Child(
                        *(bench.zygote, bench.reaper),
                        bench.directory / f"{id(self)}-{time.monotonic_ns()}.log",
                        start="worker",
                        url=url,
                        record=record_url,
                        settings=settings,
                    )
                )
                return children[-1]

            def end() -> None:
                started.wait(AMPLE)
                with suppress(ProcessLookupError):
                    os.kill(first.pid, signal.SIGKILL)

            rules = [] if self.point is None else [self.point.rule(action_of(self.fault, end))]
            proxy = bench.board.open(
                "127.0.0.1", server.port, rules=rules, lockstep=True, label=label
            )
            first = child(proxy.url())
            started.set()
            with suppress(AssertionError):
                wait_until(lambda: _done(client, record) or not first.alive(), AMPLE)
            points = [point for point, _ in points_of(proxy.snapshot())]
            first.kill()
            proxy.close()
            for identity in (*client.smembers("processes"), *client.smembers("jobwire:owners")):
                client.delete(identity)
            second = child(server.url)
            with suppress(AssertionError):
                wait_until(lambda: _done(client, record), AMPLE)
            second.send(signal.SIGTERM)
            second.ends(within=AMPLE)
            outcome = Outcome(
                *(self.point, self.fault, any(rule.struck for rule in rules)),
                pushed=sum(len(client.lrange(f"{key}:jid_history", 0, -1)) for key in _keys()),
                ran=len(record.hkeys(jobs.FINISHED)),
                loaded=bool(client.sismember("cron_jobs:default", "cron_job:default:loaded")),
                points=points,
                log=first.log.read_text(),
            )
            client.close()
            record.close()
            return outcome


def _keys() -> list[str]:
    return [f"cron_job:default:{name}" for name, *_ in ENTRIES]


def _seed(client: Any) -> None:
    midnight = int(time.time()) // DAY * DAY
    for (name, line, rule, ago, _), key in zip(ENTRIES, _keys(), strict=True):
        client.sadd("cron_jobs:default", key)
        fields = {"name": name, "klass": "Quick", "cron": line, "jw_catch_up": rule}
        client.hset(key, mapping={**fields, "message": '{"queue":"a"}', "status": "enabled"})
        client.zadd(f"{key}:enqueued", {"long ago": midnight - ago * DAY})


def _done(client: Any, record: Any) -> bool:
    """True if all jobs have run, no job is left, and the application's entry is there."""
    return (
        record.hlen(jobs.FINISHED) >= PUSHES
        and not client.llen("queue:a")
        and bool(client.sismember("cron_jobs:default", "cron_job:default:loaded"))
    )


@pytest.fixture(scope="module")
def bench(_reaper: Reaper) -> Iterator[Bench]:
    bench = Bench(_reaper, sandboxes=6)
    yield bench
    bench.close()


def test_no_fault_loses_or_doubles_a_tick(bench: Bench) -> None:
    """X-CRON-17, X-CRON-18, X-CRON-39: every command, every fault; A4 of the acceptance."""
    (clean,) = bench.all([PeriodicRun()])
    assert clean.problem == "", clean
    labels = {point.label for point in clean.points}
    assert {
        "periodic_load.lua",
        "periodic_look.lua",
        "periodic_due.lua",
        "periodic_tick.lua",
    } <= labels
    ours = [
        point
        for point in clean.points
        if (point.label.startswith("periodic") or point.label in ("TIME", "SMEMBERS", "EXISTS"))
        and point.nth <= WINDOW
    ]
    runs = [PeriodicRun(point, fault) for point in ours for fault in FAULTS]
    outcomes = [*bench.all(runs)]
    assert [each.problem for each in outcomes if each.problem] == []
    reached = {(each.point.label, each.fault) for each in outcomes if each.point and each.reached}
    for name in ("periodic_load.lua", "periodic_tick.lua"):
        assert {(name, fault) for fault in FAULTS} <= reached
