"""Unusual ends of jobs in real Sidekiq: odd errors, odd queues for a retry, the last hooks."""

from __future__ import annotations

import base64
import json
import signal
import time
import zlib
from collections.abc import Callable
from typing import Any, cast

import pytest
import redis

from harness.servers import wait_until
from tests.interop.driver import Driver
from tests.interop.sidekiq import RealSidekiq, results, started

pytestmark = pytest.mark.interop

OPTIONS = ["-r", "./endings.rb"]


def push(client: redis.Redis, name: str, number: int, *args: Any, **fields: Any) -> str:
    """Push a raw payload; return its jid."""
    jid = f"{number:024x}"
    item = {"class": name, "args": args, "jid": jid, "queue": "default", "retry": True, **fields}
    client.lpush("queue:default", json.dumps(item))
    return jid


def members(client: redis.Redis, key: str) -> dict[str, tuple[dict[str, Any], float]]:
    """Return jid to payload and score."""
    found = cast("Any", client.zrange(key, 0, -1, withscores=True))
    return {item["jid"]: (item, score) for item, score in ((json.loads(p), s) for p, s in found)}


def hooks(client: redis.Redis, jid: str) -> list[tuple[str, int]]:
    """Return the hooks that ran for a job, in order, with the size of the dead set at that time."""
    lines = [line.decode().split() for line in cast("Any", client.lrange("app:hooks", 0, -1))]
    return [(name, int(size)) for name, of, size in lines if of == jid]


def counted(client: redis.Redis, name: str) -> int:
    return int(cast("bytes | None", client.get(f"stat:{name}")) or 0)


@pytest.mark.parametrize("queue", ["", 5])
def test_an_odd_queue_for_the_retry(sidekiq: RealSidekiq, client: redis.Redis, queue: Any) -> None:
    """RETRY-7, RETRY-32: every truthy `retry_queue` becomes the queue; null and false do not."""
    odd = push(client, "FailJob", 1, retry_queue=queue)
    usual = [
        push(client, "FailJob", 2 + n, retry_queue=each) for n, each in enumerate([None, False])
    ]
    with sidekiq.worker(poll=None):
        wait_until(lambda: client.zcard("retry") == 3, 60, "the retries")
    stored = members(client, "retry")
    assert stored[odd][0]["queue"] == queue
    assert [stored[jid][0]["queue"] for jid in usual] == ["default", "default"]


def test_the_exhausted_hook_discards(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """RETRY-28: its answer keeps the job out of `dead`; 6 does not know the answer."""
    jid = push(client, "WorthlessJob", 1, retry=0)
    kept = push(client, "FailToDeadJob", 2, retry=0)
    with sidekiq.worker(poll=None, concurrency=1, options=OPTIONS) as worker:
        wait_until(lambda: kept in members(client, "dead"), 60, "the other job's death")
        worker.stop()
    assert hooks(client, jid)[0] == ("exhausted", 0)
    assert (jid in members(client, "dead")) is (sidekiq.generation == 6)
    told = [name for name, _ in hooks(client, jid)][1:]
    assert told == ([] if sidekiq.generation == 7 else ["death", "second-death"])


def test_an_unknown_class_without_retry(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """RETRY-31: it counts as false. With `retry`, the job is retried."""
    push(client, "NoSuchJob", 1, retry=None)
    kept = push(client, "NoSuchJob", 2)
    with sidekiq.worker(poll=None, concurrency=1) as worker:
        wait_until(lambda: client.zcard("retry") == 1, 60, "the retry")
        worker.stop()
    assert set(members(client, "retry")) == {kept}
    assert client.zcard("dead") == client.llen("queue:default") == 0
    assert counted(client, "failed") == 2


def test_the_draws_of_a_delay(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """RETRY-15, RETRY-4: 8 draws from 100 numbers, 6 and 7 from ten."""
    count = 200
    for number in range(count):
        push(client, "FailJob", number, "no", retry_count=8, failed_at=1.5)
    with sidekiq.worker(poll=None, concurrency=1):
        wait_until(lambda: client.zcard("retry") == count, 60, "the retries")
    unit = 1000 if sidekiq.generation == 8 else 1
    draws = {
        round(score - item["retried_at"] / unit - 9**4 - 15)
        for item, score in members(client, "retry").values()
    }
    assert draws <= set(range(100))
    if sidekiq.generation == 8:
        assert len(draws) >= 60
    else:
        assert draws <= set(range(0, 100, 10))


def test_a_new_payload_that_has_failed_already(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """PAY-14: Sidekiq's client writes such a job, and its worker kills it at its first failure."""
    item = {"class": "FailJob", "args": [], "retry_count": 24, "failed_at": 1.5}
    jid = str(driver.push(item))
    with sidekiq.worker(poll=None):
        wait_until(lambda: client.zcard("dead") == 1, 60, "the burial")
    buried = members(client, "dead")[jid][0]
    assert (buried["retry_count"], buried["failed_at"]) == (25, 1.5)
    assert buried["retried_at"] > 0


# -- Odd values of the fields that keep books, in failing jobs of real Sidekiq


LOST = "lost"
AGO = 1_700_000_000.5
ODD_COUNTS: dict[str, Any] = {
    '"3"': LOST,
    "true": LOST,
    "[]": LOST,
    "{}": LOST,
    "2.5": 3.5,
    "3.0": 4.0,
    "-1": 0,
    "-5": -4,
    "false": 0,
    "null": 0,
}
# Of a backtrace with more than three lines: the number of lines that is stored, -1 for all but one.
ODD_BACKTRACES: dict[str, Any] = {
    '"3"': 3,
    '"yes"': 0,
    "1.5": 1,
    "0": 0,
    "-1": -1,
    "2": 2,
    "[]": LOST,
    "{}": LOST,
}


def payload(jid: str, **raw: str) -> str:
    """Return the payload of a failing job, with the exact text of some fields."""
    known = {"class": '"FailJob"', "args": '["boom"]', "queue": '"default"', "retry": "5"}
    fields = {**known, "jid": json.dumps(jid), "created_at": "1700000000.25", **raw}
    return "{" + ",".join(f'"{name}":{text}' for name, text in fields.items()) + "}"


def failed(
    sidekiq: RealSidekiq, client: redis.Redis, payloads: list[str]
) -> dict[str, dict[str, Any]]:
    """Return what a worker stored of these jobs, by jid; a job that it lost is not there."""
    client.lpush("queue:default", *payloads)

    def processed() -> bool:
        return client.get("stat:processed") == str(len(payloads)).encode()

    with sidekiq.worker(poll=None, concurrency=1) as worker:
        wait_until(processed, 60, "the failures, which a heartbeat counts")
        worker.stop()
    stored = {}
    for name in ("retry", "dead"):
        for text in cast("list[bytes]", client.zrange(name, 0, -1)):
            item = json.loads(text)
            stored[item["jid"]] = {**item, "place": name}
    return stored


def test_odd_counts(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """RETRY-2, RETRY-17, RETRY-19: texts, true, arrays and objects lose the job; numbers count."""
    texts = [payload(raw, retry_count=raw, failed_at=str(AGO)) for raw in ODD_COUNTS]
    stored = failed(sidekiq, client, texts)
    seen = {raw: stored[raw]["retry_count"] if raw in stored else LOST for raw in ODD_COUNTS}
    assert seen == ODD_COUNTS
    for raw in ("false", "null"):  # a first failure
        assert stored[raw]["failed_at"] != AGO
        assert "retried_at" not in stored[raw]
    assert stored["-1"]["failed_at"] == AGO
    assert "retried_at" in stored["-1"]


def test_odd_backtraces(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """RETRY-22, RETRY-19: the first N lines, all but the last for -1, all for true."""
    stored = failed(
        sidekiq,
        client,
        [payload(raw, backtrace=raw) for raw in (*ODD_BACKTRACES, "true", "false", "null")],
    )

    def lines(jid: str) -> int:
        text = base64.b64decode(stored[jid]["error_backtrace"].replace("\n", ""))
        return len(json.loads(zlib.decompress(text)))

    whole = lines("true")
    assert whole > 3
    seen = {raw: lines(raw) if raw in stored else LOST for raw in ODD_BACKTRACES}
    assert seen == {**ODD_BACKTRACES, "-1": whole - 1}
    assert "error_backtrace" not in {*stored["false"], *stored["null"]}


def test_odd_time_limits(sidekiq: RealSidekiq, client: redis.Redis) -> None:
    """RETRY-6, RETRY-21, RETRY-14, RETRY-19: 6 ignores `retry_for`, 7 and 8 lose on odd types."""
    limits = ['"3600"', '""', "true", "[]", "{}"]
    texts = [payload(f"limit {raw}", retry_for=raw) for raw in limits]
    texts += [payload(f"plain {raw}", retry_for=raw) for raw in ("0", "-5", "3600.5")]
    times = ['"yesterday"', "null", "true"]
    later = {"retry_for": "3600", "retry_count": "1"}
    texts += [payload(f"time {raw}", failed_at=raw, **later) for raw in times]
    texts.append(payload("time missing", **later))
    stored = failed(sidekiq, client, texts)
    seen = {jid: item["place"] for jid, item in stored.items()}
    if sidekiq.generation == 6:
        assert seen == {json.loads(text)["jid"]: "retry" for text in texts}
        assert stored["time missing"].get("failed_at") is None  # nothing needs it
        return
    assert seen == {"plain 0": "dead", "plain -5": "dead", "plain 3600.5": "retry"}


# -- Counters that Sidekiq writes for each outcome of a job: the rows of the table of STAT-1


FIVE_YEARS = 157_680_000  # seconds
Prepare = Callable[[Driver, redis.Redis, int], None]


def done(driver: Driver, client: redis.Redis, generation: int) -> None:
    driver.perform_async("EchoJob")
    driver.push({"class": "EchoJob", "args": [], "skip": True, "retry": True})


def raised(driver: Driver, client: redis.Redis, generation: int) -> None:
    driver.perform_async("FailJob")
    driver.perform_async("FailToDeadJob")
    driver.perform_async("FailWithoutRetryJob")
    driver.perform_async("FailForgottenJob")
    if generation > 6:
        driver.perform_async("RetryInJob", "discard")
        driver.perform_async("RetryInJob", "kill")


def unknown(driver: Driver, client: redis.Redis, generation: int) -> None:
    driver.push({"class": "NoSuchJob", "args": [], "retry": True})
    driver.push({"class": "NoSuchJob", "args": [], "retry": 0})
    driver.push({"class": "NoSuchJob", "args": [], "retry": False})


def unreadable(driver: Driver, client: redis.Redis, generation: int) -> None:
    client.lpush("queue:default", b'{"class":"EchoJob"', b"")


EXPECTED: dict[str, tuple[Prepare, int, int, dict[str, int]]] = {
    "done": (done, 2, 0, {"EchoJob|p": 2}),
    "raised": (
        raised,
        6,
        6,
        {
            f"{name}|{counter}": 2 if name == "RetryInJob" else 1
            for name in (
                *("FailJob", "FailToDeadJob", "FailWithoutRetryJob", "FailForgottenJob"),
                "RetryInJob",
            )
            for counter in "pf"
        },
    ),
    "unknown": (unknown, 3, 3, {}),
    "unreadable": (unreadable, 0, 0, {}),
}


def measured(client: redis.Redis) -> dict[str, int]:
    """Return the counters of all minutes, without those of milliseconds."""
    totals: dict[str, int] = {}
    for key in cast("list[bytes]", client.keys("j|*:??")):
        for field, value in cast("dict[bytes, bytes]", client.hgetall(key)).items():
            if not field.endswith(b"|ms"):
                totals[field.decode()] = totals.get(field.decode(), 0) + int(value)
    return totals


@pytest.mark.parametrize("outcome", EXPECTED)
def test_a_row(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, outcome: str) -> None:
    """STAT-1, STAT-2, STAT-4, STAT-5, MET-7, MET-8, MET-12: after the worker has ended."""
    prepare, processed, failed, metrics = EXPECTED[outcome]
    prepare(driver, client, sidekiq.generation)
    if outcome == "raised" and sidekiq.generation == 6:
        processed, failed = 4, 4  # 6 has neither discard nor kill
    while client.llen("queue:default"):  # a stop puts back a job that has not begun
        with sidekiq.worker(poll=None) as worker:
            wait_until(lambda: not client.llen("queue:default"), 60, "all jobs")
            assert worker.stop() == 0
    for name, count in (("processed", processed), ("failed", failed)):
        assert int(cast("Any", client.get(f"stat:{name}")) or 0) == count, name
        days: Any = client.keys(f"stat:{name}:*")  # two, if a midnight of UTC came meanwhile
        assert sum(int(cast("Any", client.get(day))) for day in days) == count, days
        assert all(client.ttl(day) > FIVE_YEARS - 600 for day in days)
    if sidekiq.generation == 8:  # 7 writes no metrics at its end
        assert measured(client) == metrics


@pytest.mark.usefixtures("iterable_jobs")
def test_a_run_that_yields(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """STAT-3, ITER-14: it counts as failed, and in the metrics as a success."""
    jid = driver.perform_async("IterJob", 600, 0.05)
    with sidekiq.worker(poll=None) as worker:
        wait_until(lambda: client.llen(f"app:items:{jid}"), 60, "the first item")
        assert worker.stop() == 0
    assert client.mget("stat:processed", "stat:failed") == [b"1", b"1"]
    if sidekiq.generation == 8:
        assert measured(client) == {"IterJob|p": 1}


def test_a_job_that_is_aborted(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """RETRY-16, SIG-7: it counts as failed, and the process ends soon after its deadline."""
    jid = driver.perform_async("SleepJob", 60)
    with sidekiq.worker(poll=None, timeout=1, concurrency=1) as worker:
        wait_until(lambda: started(client) == [jid], 60, "the job's start")
        began = time.monotonic()
        worker.signal(signal.SIGTERM)
        assert worker.wait() == 0
        assert time.monotonic() - began < 11
    assert client.mget("stat:processed", "stat:failed") == [b"1", b"1"]
    assert results(client) == []
