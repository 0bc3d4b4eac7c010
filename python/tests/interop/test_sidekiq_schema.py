"""Payloads generated from the schema alone, run by real Sidekiq."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import redis

from harness.servers import wait_until
from tests.interop.shapes import differences
from tests.interop.sidekiq import RealSidekiq, results
from tests.schema_strategies import payloads, sample, text

pytestmark = pytest.mark.interop

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
