"""Sidekiq's page of metrics with Python's counts, and Python's with Sidekiq's counts."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any, cast

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire.connection.sync import SyncRedis
from jobwire.protocol.keys import Keys
from jobwire.protocol.metrics import (
    Metrics,
    Totals,
    histogram_key,
    mark_deploy,
    minute_key,
    read_histogram,
    read_rollup,
    tens_key,
)
from jobwire.protocol.times import Generation
from tests.interop.driver import Driver
from tests.interop.python_worker import worker_threads
from tests.interop.sidekiq import RealSidekiq

pytestmark = pytest.mark.interop

KEYS = Keys()
QUERY = """
  require "sidekiq/metrics/query"
  query = Sidekiq::Metrics::Query.new
  totals = query.top_jobs(minutes: 60).job_results.transform_values { |job| job.totals.to_h }
  job = query.for_job(with, minutes: 60).job_results[with]
  series = job.series.transform_values { |one| one.values.sum }
  {totals: totals, averages: job.total_avg("ms"), series: series,
   hist: job.hist.values.transpose.map(&:sum),
   minutes: job.hist.reject { |_, all| all.sum == 0 }.keys}
"""


@pytest.fixture
def generation(sidekiq: RealSidekiq) -> Generation:
    if sidekiq.generation == 6:
        pytest.skip("6.4 has no metrics")
    return 7 if sidekiq.generation == 7 else 8


def minutes() -> list[float]:
    """Return a time in this minute and in those in which the test may have begun."""
    now = time.time()
    return [now - 60 * ago for ago in range(3)]


def histogram(*counted: tuple[int, int]) -> list[int]:
    """Return 26 counters, in which these indexes have these counts."""
    counters = [0] * 26
    for index, count in counted:
        counters[index] = count
    return counters


FLUSH = """
  require "sidekiq/component"
  require "sidekiq/metrics/tracking"
  with.each do |at|
    tracker = Sidekiq::Metrics::ExecutionTracker.new(Sidekiq.default_configuration)
    tracker.track("default", "Job") {}
    tracker.flush(Time.at(at).utc)
  end
"""


def test_names_of_all_times_of_day(
    driver: Driver, client: redis.Redis, generation: Generation
) -> None:
    """MET-1, MET-2, MET-4: the parts of a time that have two digits."""
    times = [
        datetime(2026, 1, day, hour, minute, tzinfo=UTC).timestamp()
        for day in (2, 12)
        for hour in (0, 3, 13)
        for minute in (0, 4, 44)
    ]
    driver.eval(FLUSH, times)
    expected = {minute_key(KEYS, at, generation) for at in times}
    expected |= {histogram_key(KEYS, "Job", at, generation) for at in times}
    if generation == 8:
        expected |= {tens_key(KEYS, at) for at in times}
    assert {key.decode() for key in cast("list[bytes]", client.keys("*"))} == expected


def test_sidekiq_reads_what_python_wrote(
    driver: Driver, shell: SyncRedis, generation: Generation
) -> None:
    """MET-1, MET-2, MET-4: totals, average, and the histogram, over several flushes."""
    metrics = Metrics()
    for ms in (7, 25, 26, 120, 400_000):
        metrics.for_thread().record("Reports::Monthly", ms, failed=False)
    metrics.for_thread().record("Reports::Monthly", 3_000, failed=True)
    now = time.time()
    shell.run(metrics.flush(KEYS, now=now, generation=generation))
    for _ in range(3):
        metrics.for_thread().record("Reports::Monthly", 25, failed=False)
    metrics.for_thread().record("Other", 0, failed=False)
    shell.run(metrics.flush(KEYS, now=now, generation=generation))

    seen = driver.eval(QUERY, "Reports::Monthly")
    totals = seen["totals"]["Reports::Monthly"]
    ms = 7 + 25 + 26 + 120 + 400_000 + 3 * 25
    assert {name: totals[name] for name in ("p", "f", "ms")} == {"p": 9, "f": 1, "ms": ms}
    assert seen["totals"]["Other"]["p"] == 1
    assert seen["averages"] == pytest.approx(ms / 8, abs=1)
    expected = histogram((0, 1), (1, 5), (5, 1), (25, 1))
    assert seen["hist"] in (expected, expected[::-1])  # 8 reverses it for its page
    assert len(seen["minutes"]) == 1


def test_python_reads_what_sidekiq_wrote(
    sidekiq: RealSidekiq,
    driver: Driver,
    client: redis.Redis,
    shell: SyncRedis,
    generation: Generation,
) -> None:
    """MET-1, MET-2: Python's counts of the same executions look the same to Sidekiq."""
    driver.perform_async("SleepJob", 0.12)
    driver.perform_async("EchoJob")
    driver.perform_async("FailJob")
    found: dict[str, Totals] = {}

    def everything() -> bool:
        for at in minutes():
            fields: Any = client.hgetall(minute_key(KEYS, at, generation))
            found.update(read_rollup(fields))
        return len(found) == 3

    with sidekiq.worker(poll=None):
        wait_until(everything, 40, "a beat after all executions")
    slept = found["SleepJob"]
    assert (slept.count, slept.failed, slept.ms >= 120) == (1, 0, True)
    assert found["FailJob"] == Totals(1, 1, 0)
    assert found["EchoJob"].count == 1
    if generation == 8:
        tens: Any = [client.hgetall(tens_key(KEYS, at)) for at in minutes()]
        assert slept in [read_rollup(fields).get("SleepJob") for fields in tens]

    # The same executions, counted by Python as another class, look the same.
    metrics = Metrics()
    metrics.for_thread().record("TwinJob", slept.ms, failed=False)
    at = next(
        at for at in minutes() if client.exists(histogram_key(KEYS, "SleepJob", at, generation))
    )
    shell.run(metrics.flush(KEYS, now=at, generation=generation))
    theirs, ours = (
        cast("bytes", client.get(histogram_key(KEYS, name, at, generation)))
        for name in ("SleepJob", "TwinJob")
    )
    assert ours == theirs
    assert sum(read_histogram(ours)) == 1
    one, other = (driver.eval(QUERY, name) for name in ("SleepJob", "TwinJob"))
    assert one["totals"].pop("SleepJob") == other["totals"].pop("TwinJob")
    for what in ("averages", "series", "hist", "minutes"):
        assert one[what] == other[what]


def test_sidekiq_reads_what_a_worker_counted(
    driver: Driver, server: Server, client: redis.Redis, generation: Generation
) -> None:
    """MET-1, MET-4, MET-10: in a fleet of Sidekiq 7, a worker writes where 7 reads."""
    if generation == 7:  # as in the hash of its process
        client.sadd("processes", "ruby:1:0123456789ab")
        client.hset("ruby:1:0123456789ab", "info", '{"version":"7.3.2"}')
    with worker_threads(server.url):
        driver.perform_async("SleepJob", 0.12)
        driver.perform_async("FailJob")
        driver.push({"class": "EchoJob", "args": [], "wrapped": "Inner"})
        wait_until(lambda: client.get("stat:processed") == b"3", 40, "the runs")
    seen = driver.eval(QUERY, "SleepJob")
    totals = {name: (each["p"], each.get("f", 0)) for name, each in seen["totals"].items()}
    assert totals == {"SleepJob": (1, 0), "FailJob": (1, 1), "Inner": (1, 0)}
    assert sum(seen["hist"]) == 1


MARKS = """
  require "sidekiq/metrics/query"
  marks = Sidekiq::Metrics::Query.new.top_jobs(minutes: 60).marks
  marks.map { |mark| [mark.time.to_i, mark.label] }
"""


def test_marks(
    driver: Driver, client: redis.Redis, shell: SyncRedis, generation: Generation
) -> None:
    """MET-5, MET-14: each side shows and respects the mark of the other."""
    now = time.time()
    assert shell.run(mark_deploy(KEYS, "v1 é", now=now - 120)) is True
    if time.gmtime(now).tm_mday == time.gmtime(now - 120).tm_mday:  # Sidekiq shows today's
        assert [int(now - 120) // 60 * 60, "v1 é"] in driver.eval(MARKS)
    assert not driver.eval('require "sidekiq/deploy"; Sidekiq::Deploy.mark!(with)', "v1 é")
    driver.eval('require "sidekiq/deploy"; Sidekiq::Deploy.mark!(with)', "v2")
    before = driver.eval(MARKS)
    assert shell.run(mark_deploy(KEYS, "v2", now=time.time())) is False
    assert driver.eval(MARKS) == before
    ttls = [client.ttl(key) for key in cast("Any", client.keys("*-marks"))]
    assert all(7_775_900 < ttl <= 7_776_000 for ttl in ttls)


def test_a_mark_that_was_cut_off(driver: Driver, client: redis.Redis, shell: SyncRedis) -> None:
    """The lock alone is not a mark; the next process makes the mark of the lock's time.

    MET-6, MET-15.
    """
    client.set("deploylock-v1", "2026-01-02T03:04:00Z", ex=60)
    assert shell.run(mark_deploy(KEYS, "v1", now=time.time())) is True
    assert client.hgetall("20260102-marks") == {b"2026-01-02T03:04:00Z": b"v1"}
