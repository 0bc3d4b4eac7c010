"""Sidekiq's API and web page on odd members, whole sets and empty processes."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
import redis

from tests.interop.commands import commands
from tests.interop.driver import Driver, RubyError
from tests.interop.sidekiq import RealSidekiq

pytestmark = pytest.mark.interop

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
PAGES = """
  require "rack/mock"
  require "sidekiq/web"
  with.map { |path|
    page = Rack::MockRequest.new(Sidekiq::Web).get(path, "rack.session" => {})
    [page.status, page.body]
  }
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


@pytest.mark.parametrize("field", ["queue", "retry"])
def test_retry_now_without_a_field(driver: Driver, client: redis.Redis, field: str) -> None:
    """INSP-5: the defaults of a push."""
    client.zadd("retry", {json.dumps({k: v for k, v in JOB.items() if k != field}): 4e9})
    driver.eval(RETRY)
    assert only(client)[field] == JOB[field]


def test_kill_trims(driver: Driver, client: redis.Redis, sidekiq: RealSidekiq) -> None:
    """INSP-29: 8 adds first and trims in a transaction of its own."""
    client.zadd("retry", {json.dumps(JOB): 4e9})
    client.zadd("dead", {"old": 1.0})
    with commands(client) as seen:
        driver.eval("Sidekiq::RetrySet.new.first.kill; nil")
    assert client.zcard("dead") == 1
    names = [
        words[0] for words in seen[[words[:2] for words in seen].index(["ZADD", "dead"]) - 1 :]
    ]
    first = ["ZADD", "MULTI"] if sidekiq.generation == 8 else ["MULTI", "ZADD"]
    trims = ["ZREMRANGEBYSCORE", "ZREMRANGEBYRANK", "EXEC"]
    assert names[-5:] == [*first, *trims]


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


def test_clearing_a_set(driver: Driver, client: redis.Redis) -> None:
    """INSP-24: one command."""
    client.zadd("retry", {json.dumps(JOB): 4e9, json.dumps(LATE): 4e9})
    with commands(client) as seen:
        driver.set_call("retry", "clear")
    assert ["UNLINK", "retry"] in seen
    assert client.zcard("retry") == 0


def test_a_process_without_fields(driver: Driver, client: redis.Redis) -> None:
    """INSP-11, INSP-20, INSP-25, BEAT-19: it is shown, and not quiet."""
    client.sadd("processes", "strange", "gone")
    client.hset("strange", mapping={"info": json.dumps({"identity": "strange"})})
    client.sadd("queues", "empty")
    (process,) = driver.processes()
    assert (process.identity, process.quiet, process.busy) == ("strange", False, 0)
    assert driver.queue_size("empty") == 0


def test_concurrency_of_a_process(driver: Driver, client: redis.Redis) -> None:
    """INSP-32: up to 7 that of `info`, since 8 that of the hash."""
    client.sadd("processes", "both")
    info = json.dumps({"identity": "both", "concurrency": 9})
    client.hset("both", mapping={"info": info, "concurrency": 2})
    (process,) = driver.processes()
    assert process.concurrency == (2 if int(driver.version().partition(".")[0]) >= 8 else 9)


def test_the_json_of_the_web_page(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """INSP-2, STAT-1: the members of /stats and /stats/queues."""
    driver.push(JOB)
    (status, text), (queues_status, queues) = driver.eval(PAGES, with_=["/stats", "/stats/queues"])
    assert (status, queues_status) == (200, 200)
    assert json.loads(queues) == {"default": 1}
    page = json.loads(text)
    assert page["sidekiq"].keys() == {
        *("processed", "failed", "busy", "processes", "enqueued", "scheduled", "retries", "dead"),
        "default_latency",
    }
    redis_members = {
        *("redis_version", "uptime_in_days", "connected_clients", "used_memory_human"),
        "used_memory_peak_human",
    }
    if sidekiq.generation == 8:
        redis_members |= {"store_name", "store_version"}
    assert page.keys() == {"sidekiq", "redis", "server_utc_time"}
    assert page["redis"].keys() == redis_members
    assert page["server_utc_time"].endswith(" UTC")


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
