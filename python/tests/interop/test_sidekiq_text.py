"""Texts that only some parsers accept, in a queue of real Sidekiq."""

from __future__ import annotations

from typing import Any, cast

import pytest
import redis

from harness.servers import wait_until
from tests.interop.sidekiq import RealSidekiq, results, started

pytestmark = pytest.mark.interop

RUN, BURIED = "run", "in dead"
LAST = '{"class":"EchoJob","args":[],"jid":"last","queue":"default","retry":true}'


def nested(levels: int) -> str:
    """Return a payload with this many levels, the object and `args` being the first two."""
    inner = "[" * (levels - 2) + "]" * (levels - 2)
    return f'{{"class":"SleepJob","jid":"nested {levels}","args":[0,{inner}]}}'


def fates(sidekiq: RealSidekiq, client: redis.Redis, *texts: str | bytes) -> list[str]:
    """Return what a worker did with each payload."""
    client.lpush("queue:default", *texts, LAST)
    with sidekiq.worker(poll=None, concurrency=1) as worker:
        wait_until(lambda: any(one["jid"] == "last" for one in results(client)), 60, "the last job")
        worker.stop()
    ran = {one["jid"] for one in results(client)}
    dead = set(cast("list[bytes]", client.zrange("dead", 0, -1)))

    def fate(text: Any) -> str:
        raw = text if isinstance(text, bytes) else text.encode()
        if any(jid is not None and f'"{jid}"'.encode() in raw for jid in ran):
            return RUN
        return BURIED if raw in dead else "lost"

    return [fate(text) for text in texts]


def test_levels(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """EXEC-9, PAY-3: 8 begins a job with one level more than 6 and 7, and cannot write it back."""
    levels = (99, 100, 101, 102)
    seen = fates(sidekiq, client, *map(nested, levels))
    last = "lost" if sidekiq.generation == 8 else BURIED  # the report of its end fails
    assert seen == [RUN, RUN, last, BURIED]
    begun = [f"nested {level}" for level in levels[: 3 if sidekiq.generation == 8 else 2]]
    assert started(client) == begun


def test_comments(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """EXEC-9, PAY-1: 6 and 7 run JSON with comments, 8 kills it."""
    texts = [
        '{"class":"EchoJob",/* why */"args":[],"jid":"block"}',
        '{"class":"EchoJob","args":[],"jid":"line"}// why\n',
    ]
    assert fates(sidekiq, client, *texts) == [BURIED if sidekiq.generation == 8 else RUN] * 2


def test_text_that_is_cut_off(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """EXEC-3, EXEC-11, EXEC-4: killed as its bytes, not counted; other JSON is lost."""
    texts = ['{"class":"EchoJob","args":[', "", "hello", "[1]", "5", "null"]
    assert fates(sidekiq, client, *texts) == [BURIED] * 3 + ["lost"] * 3
    counts = [
        int(cast("bytes", client.get(f"stat:{name}") or 0)) for name in ("processed", "failed")
    ]
    assert counts == [1, 0]


def test_jobs_without_arguments(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """EXEC-10, EXEC-1: without `args` there are no arguments; one array is one argument."""
    texts = [
        '{"class":"EchoJob","jid":"missing"}',
        '{"class":"EchoJob","jid":"null","args":null}',
        '{"class":"EchoJob","jid":"array","args":[[1,2]]}',
    ]
    assert fates(sidekiq, client, *texts) == [RUN] * 3
    assert [one["args"] for one in results(client)] == [[], [], [[1, 2]], []]


def test_encoded_arguments(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """EXEC-13: without the extensions, the job runs on the encoded text."""
    texts = [
        f'{{"class":"EchoJob","jid":"{mark}","args":["eJyLjgUAARUAuQ=="],"{mark}":true}}'
        for mark in ("encrypt", "compressed")
    ]
    assert fates(sidekiq, client, *texts) == [RUN] * 2
    assert [one["args"] for one in results(client)] == [["eJyLjgUAARUAuQ=="]] * 2 + [[]]
