"""A thousand jobs each way: each side runs the jobs of the other with exactly these arguments."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire import AsyncClient, Client
from tests.interop.app import make_app
from tests.interop.driver import Driver
from tests.interop.python_worker import worker_threads
from tests.interop.shapes import SEED, Shapes, differences
from tests.interop.sidekiq import RealSidekiq, results
from tests.schema_strategies import payloads, sample, text

pytestmark = pytest.mark.interop

COUNT = 1_000


def ran(client: redis.Redis, count: int) -> dict[str, Any]:
    """Wait for this many jobs; return jid to arguments."""
    wait_until(lambda: client.llen("app:results") >= count, 40, f"{count} results, seed {SEED}")
    reports = results(client)
    assert len(reports) == len({report["jid"] for report in reports}) == count
    return {report["jid"]: report["args"] for report in reports}


def test_ruby_enqueues_and_python_runs(driver: Driver, client: redis.Redis, server: Server) -> None:
    """PAY-1, PAY-5, PAY-6, EXEC-1; the scheduled quarter also SCHED-6."""
    quarter = COUNT // 4
    lists = Shapes().arguments(COUNT)
    # Interleaved, so that every way to enqueue gets its share of the hard values.
    single, bulk, raw, scheduled = (lists[start::4] for start in range(4))
    jids = [driver.perform_async("EchoJob", *args) for args in single]
    jids += driver.perform_bulk("AsyncEchoJob", bulk)
    jids += [driver.push({"class": "Reports::Nightly::NestedJob", "args": args}) for args in raw]
    jids += [driver.push({"class": "EchoJob", "args": args, "at": 1}) for args in scheduled]
    assert client.zcard("schedule") == quarter
    sent = {str(jid): args for jid, args in zip(jids, single + bulk + raw + scheduled, strict=True)}
    with worker_threads(server.url, poll=0.2):
        assert differences(sent, ran(client, COUNT)) == []


def test_python_enqueues_and_ruby_runs(
    sidekiq: RealSidekiq, client: redis.Redis, server: Server
) -> None:
    """PAY-2, PAY-3, PAY-5, PAY-6, PUSH-1, BULK-1, SCHED-1: with every client of ours."""
    lists = Shapes(SEED + 1).arguments(COUNT)
    single, bulk, scheduled, typed, asynchronous, later = (lists[start::6] for start in range(6))
    echo = make_app(url=server.url).jobs["EchoJob"]
    with Client(server.url) as sync:
        jids = [sync.push("EchoJob", args) for args in single]
        jids += sync.push_bulk("Reports::Nightly::NestedJob", bulk)
        jids += sync.push_bulk("EchoJob", scheduled, at=1)
    jids += [echo.enqueue(*args) for args in typed]
    echo.app.close()

    async def push() -> list[str | None]:
        async with AsyncClient(server.url) as client:
            pushed = [await client.push("EchoJob", args) for args in asynchronous]
            return pushed + await client.push_bulk("EchoJob", later, at=[1.5] * len(later))

    jids += asyncio.run(push())
    assert client.zcard("schedule") == len(scheduled) + len(later)
    order = [*single, *bulk, *scheduled, *typed, *asynchronous, *later]
    sent = {str(jid): args for jid, args in zip(jids, order, strict=True)}
    with sidekiq.worker(poll=0.2, concurrency=4):
        assert differences(sent, ran(client, COUNT)) == []


# -- Payloads generated from the schema alone, run by real Sidekiq


PARTS = [f"{part}-{name}" for part in ("pushed", "writer") for name in ("7.3", "8.1")]
EACH = 50


@cache
def generated(part: str) -> list[dict[str, Any]]:
    # The same for every version: any writer may leave such payloads on a queue. Sidekiq 8
    # drops a job with a truthy `profile` where no profiler is installed, as here.
    return sample(payloads(part, fixed={"class": "EchoJob", "profile": None}), EACH)


def test_what_the_schema_allows_sidekiq_runs(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """PAY-1, PAY-7, PAY-12, GEN-1, GEN-2, EXEC-1: both generations, failed before or not."""
    sent: dict[str, Any] = {}
    for number, payload in enumerate(each for part in PARTS for each in generated(part)):
        jid = f"{number:024x}"
        client.lpush("queue:default", text({**payload, "jid": jid}))
        sent[jid] = payload["args"]
    with sidekiq.worker(poll=None, concurrency=4) as worker:
        wait_until(
            lambda: client.llen("app:results") >= len(sent) or client.zcard("retry"),
            20,
            f"{len(sent)} results",
        )
        ran = {report["jid"]: report["args"] for report in results(client)}
        assert client.zrange("retry", 0, -1) == [], worker.log()[-3000:]
    assert client.zrange("dead", 0, -1) == []
    assert differences(sent, ran) == []


def test_sidekiq_loses_a_job_with_an_unknown_log_level(
    sidekiq: RealSidekiq, client: redis.Redis
) -> None:
    """PAY-13: the schema names the levels because of this, and a client should write no other."""
    levels: dict[str, Any] = {"name": "loud", "number": 99.5, "array": ["info"], "none": False}
    base = {**generated("pushed-7.3")[0], "retry": True}
    for number, (name, level) in enumerate([*levels.items(), ("good", "info")]):
        payload = {**base, "jid": f"{number:024x}", "args": [name], "log_level": level}
        client.lpush("queue:default", text(payload))
    with sidekiq.worker(poll=None, concurrency=1):
        wait_until(lambda: f"{len(levels):024x}" in jids(client), 60, "the last job")
    ran = {report["args"][0] for report in results(client)}
    # 6 and 7 pass over a name that they do not know.
    assert ran == {"good", "none", *(["name"] if sidekiq.generation < 8 else [])}
    assert client.exists("queue:default", "retry", "dead") == 0


def jids(client: redis.Redis) -> set[str]:
    return {report["jid"] for report in results(client)}
