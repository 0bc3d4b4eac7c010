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


# -- Sidekiq's API and web page on odd members, whole sets and empty processes


JID = "a" * 24
JOB = {"class": "EchoJob", "args": [], "jid": JID, "queue": "default", "retry": True}
LATE = {**JOB, "jid": "b" * 24}

RETRY = "Sidekiq::RetrySet.new.first.retry; nil"
ADDING = """
  class Adding
    def call(*)
      $left ||= [redis("ZCARD", "retry"), redis("LLEN", "queue:default")]
      $added ||= redis("ZADD", "retry", "3000000000", $late)
      yield
    end
  end
  $late = with
  config = (GENERATION >= 7) ? Sidekiq.default_configuration : Sidekiq
  config.client_middleware { |chain| chain.add(Adding) }
  nil
"""


def only(client: redis.Redis, queue: str = "default") -> dict[str, Any]:
    (text,) = cast("list[bytes]", client.lrange(f"queue:{queue}", 0, -1))
    job: dict[str, Any] = json.loads(text)
    return job


@pytest.mark.parametrize("count", [3, 0, -1, "3", 2.5, None, True])
def test_retry_now_of_any_count(
    driver: Driver, client: redis.Redis, sidekiq: RealSidekiq, count: object
) -> None:
    """INSP-5, INSP-21, INSP-22: an integer is lowered."""
    client.zadd("retry", {json.dumps({**JOB, "retry_count": count}): 4e9})
    kind = type(count)
    if kind in (str, bool):
        with pytest.raises(RubyError, match="NoMethodError"):
            driver.eval(RETRY)
        assert (client.zcard("retry"), client.llen("queue:default")) == (0, 0)
        return
    driver.eval(RETRY)
    assert client.zcard("retry") == 0
    left = only(client)
    assert left.pop("enqueued_at")
    assert left.pop("created_at")
    expected = count if count is None else cast("float", count) - 1
    assert left == {**JOB, "retry_count": expected}


@pytest.mark.parametrize(("text", "lost"), [('{"class":"EchoJob"', True), ("[1]", False)])
def test_retry_now_of_what_cannot_be_read(
    driver: Driver, client: redis.Redis, text: str, lost: bool
) -> None:
    """INSP-23: text that is not JSON is lost; the API fails already at listing an array."""
    client.zadd("retry", {text: 4e9})
    with pytest.raises(RubyError):
        driver.eval(RETRY)
    assert client.zcard("retry") == (0 if lost else 1)
    assert client.keys("queue:*") == []


def test_retry_all_of_a_set_that_grows(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """INSP-26, INSP-27: out of the set, then into the queue; 6 and 7 go on until it is empty."""
    client.zadd("retry", {json.dumps(JOB): 4e9})
    driver.eval(ADDING, with_=json.dumps(LATE))
    driver.set_call("retry", "retry_all")
    assert driver.eval("$left") == [0, 0]
    assert client.llen("queue:default") == (1 if sidekiq.generation == 8 else 2)


def test_reschedule_of_a_member_that_is_gone(driver: Driver, client: redis.Redis) -> None:
    """INSP-30: it is added, with the difference as its score."""
    client.zadd("schedule", {json.dumps(JOB, separators=(",", ":")): 4e9})
    gone = 'entry = Sidekiq::ScheduledSet.new.first; redis("DEL", "schedule"); '
    driver.eval(gone + "entry.reschedule(4e9 + 60); nil")
    ((_, score),) = cast("Any", client.zrange("schedule", 0, -1, withscores=True))
    assert score == pytest.approx(60, abs=1)


def test_one_hash_of_work(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """INSP-18, INSP-31: 6 reads one of them, 7 and 8 the other."""
    client.sadd("processes", "a:1:0123456789ab")
    client.hset("a:1:0123456789ab", mapping={"info": "{}", "busy": "1"})
    for suffix in ("work", "workers"):
        record = {"queue": suffix, "payload": json.dumps(JOB), "run_at": 1_700_000_000}
        client.hset(f"a:1:0123456789ab:{suffix}", "t1", json.dumps(record))
    (work,) = driver.works()
    assert work.queue == ("workers" if sidekiq.generation == 6 else "work")


def test_concurrency_of_a_process(driver: Driver, client: redis.Redis) -> None:
    """INSP-32: up to 7 that of `info`, since 8 that of the hash."""
    client.sadd("processes", "both")
    info = json.dumps({"identity": "both", "concurrency": 9})
    client.hset("both", mapping={"info": info, "concurrency": 2})
    (process,) = driver.processes()
    assert process.concurrency == (2 if int(driver.version().partition(".")[0]) >= 8 else 9)


def test_the_span_of_metrics(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """MET-13: 60 minutes by default; a span that is too long is cut."""
    if sidekiq.generation == 6:
        pytest.skip("6.4 has no metrics")
    query = 'require "sidekiq/metrics/query"; Sidekiq::Metrics::Query.new.top_jobs'
    spans = {"": 60, "(minutes: 90)": 90}
    if sidekiq.generation == 8:
        spans |= {"(minutes: 481)": 60, "(hours: 73)": 72 * 6}
    for span, buckets in spans.items():
        with commands(client) as seen:
            driver.eval(f"{query}{span}; nil")
        read = [command[1] for command in seen if command[0] == "HGETALL"]
        assert sum(key.startswith("j|") for key in read) == buckets
