"""Reads and writes of Sidekiq's own API, which the requirements of an inspector follow."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
import redis

from tests.interop.commands import commands
from tests.interop.driver import Driver, RubyError
from tests.interop.sidekiq import RealSidekiq

pytestmark = pytest.mark.interop


def entry(jid: str, **fields: Any) -> str:
    """Return a payload as Ruby spells it, of a job that has failed once."""
    item = {"retry": True, "queue": "default", "args": [], "class": "EchoJob", "jid": jid}
    item |= {"created_at": 1795192067.25, "error_message": "x", "retry_count": 0, **fields}
    return json.dumps(item, separators=(",", ":"), ensure_ascii=False)


def names(seen: list[list[str]]) -> list[str]:
    return [command[0] for command in seen]


def payloads(client: redis.Redis, queue: str = "default") -> list[dict[str, Any]]:
    found = cast("list[bytes]", client.lrange(f"queue:{queue}", 0, -1))
    return [json.loads(payload) for payload in found]


def test_odd_data_is_shown_as_far_as_it_goes(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """INSP-3: Sidekiq shows broken text whole, and odd fields in part."""
    client.sadd("queues", "default")
    client.rpush("queue:default", "not json", "{}", entry("a" * 24, created_at="2026-11-20"))
    broken, empty, texts = driver.queue_list()
    assert (broken.payload, broken.item, broken.args) == (b"not json", {}, ["not json"])
    assert (empty.jid, empty.klass, empty.raised) == (None, None, {})
    assert texts.jid == "a" * 24
    assert set(texts.raised) >= {"created_at"}  # the requirement asks for more
    client.lpush("queue:default", "[1]")
    with pytest.raises(RubyError):
        driver.queue_list()


def test_reschedule(driver: Driver, client: redis.Redis) -> None:
    """INSP-8: a ZINCRBY of the text encoded again, so other spellings get a second member."""
    odd = '{"class":"EchoJob", "args":[],"jid":"' + "b" * 24 + '"}'
    client.zadd("schedule", {entry("a" * 24): 4e9, odd: 4e9 + 1})
    with commands(client) as seen:
        driver.reschedule("schedule", "a" * 24, 4e9 + 600)
        driver.reschedule("schedule", "b" * 24, 4e9 + 601)
    assert names(seen).count("ZINCRBY") == 2
    scores = {
        member.decode(): score
        for member, score in cast("Any", client.zrange("schedule", 0, -1, withscores=True))
    }
    assert scores[entry("a" * 24)] == pytest.approx(4e9 + 600)
    assert scores[odd] == 4e9 + 1  # not moved
    assert sorted(scores.values())[0] == pytest.approx(600)  # the new member is due since 1970


INFO = {"hostname": "h", "pid": 1, "started_at": 1795192067.25, "queues": ["default"]}
