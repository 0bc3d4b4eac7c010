"""Unique jobs of Ruby and Python on one Redis: examples/ruby/jobwire.rb in a real Sidekiq."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from harness.chroots import CHROOTS
from harness.servers import Server, wait_until
from jobwire import App, DuplicateJob
from tests.interop.driver import Driver, RubyError
from tests.interop.sidekiq import RUBY, RealSidekiq, open_gate, results, started
from tests.workers import running

ROOT = Path(__file__).resolve().parents[3]
VECTORS = json.loads((ROOT / "fixtures" / "vectors" / "unique-keys.json").read_text("utf-8"))


@pytest.fixture
def sidekiq(sidekiq_version: str, server: Server, tmp_path: Path) -> RealSidekiq:
    """A real Sidekiq with the Ruby side of unique jobs."""
    for file in (*RUBY.glob("*.rb"), ROOT / "examples" / "ruby" / "jobwire.rb"):
        shutil.copy(file, tmp_path)
    return RealSidekiq(sidekiq_version, CHROOTS / sidekiq_version, server.url, tmp_path)


@pytest.fixture
def driver(sidekiq: RealSidekiq) -> Iterator[Driver]:
    with sidekiq.driver(loads="unique.rb") as driver:
        yield driver


@pytest.fixture
def app(server: Server) -> Iterator[App]:
    app = App(server.url)
    yield app
    app.close()


def locks(client: redis.Redis) -> list[str]:
    """Return the ids of the jobs that have a lock; one may be released meanwhile."""
    values = [cast("bytes | None", client.get(key)) for key in client.keys("jobwire:unique:*")]
    return [value.decode() for value in values if value is not None]


def schedule(client: redis.Redis) -> dict[str, Any]:
    """Return the only payload of the schedule."""
    [text] = cast("list[bytes]", client.zrange("schedule", 0, -1))
    fields: dict[str, Any] = json.loads(text)
    return fields


def no_lock(client: redis.Redis) -> bool:
    return not locks(client)


def test_the_digest_is_that_of_every_language(driver: Driver) -> None:
    """X-UNIQ-1."""
    code = (
        "with.map { |c, q, json| Jobwire::Key.digest(c, q, JSON.parse(json, decimal_class: nil)) }"
    )
    given = [[one["class"], one["queue"], one["json"]] for one in VECTORS]
    assert driver.eval(code, given) == [one["digest"] for one in VECTORS]


def test_each_side_sees_the_lock_of_the_other(
    driver: Driver, app: App, client: redis.Redis
) -> None:
    """X-UNIQ-2 to X-UNIQ-4: now and scheduled, with the id of the first job."""
    job = app.job(name="EchoJob", unique=3600)(lambda *args: None)
    first = driver.perform_async("EchoJob", 1, "x")
    with pytest.raises(DuplicateJob) as refused:
        job.enqueue(1, "x")
    assert refused.value.jid == first
    second = job.enqueue(2, "x")
    with pytest.raises(RubyError, match=f"job {second} has the same unique key"):
        driver.perform_async("EchoJob", 2, "x")
    later = driver.perform_in("EchoJob", 60, 3)
    with pytest.raises(DuplicateJob):
        job.enqueue_in(5, 3)
    assert client.llen("queue:default") == 2
    assert client.zcard("schedule") == 1
    assert set(locks(client)) == {first, second, later}
    assert "at" not in schedule(client)


def test_an_end_in_ruby_releases_the_lock(
    sidekiq: RealSidekiq, app: App, client: redis.Redis
) -> None:
    """X-UNIQ-6, X-UNIQ-7: success, death, and a failure without retry; a retry keeps the lock."""
    wishes: dict[str, dict[str, Any]] = {
        "EchoJob": {},
        "FailToDeadJob": {"retry": 0},
        "FailWithoutRetryJob": {"retry": False},
    }
    for name, options in wishes.items():
        app.job(name=name, unique=3600, **options)(lambda *args: None).enqueue(name)
    app.job(name="FailOnceMoreJob", unique=3600, retry=1)(lambda *args: None).enqueue("again")
    assert len(locks(client)) == 4
    with sidekiq.worker(program="unique.rb", poll=None):
        wait_until(lambda: client.zcard("retry") == 1 and len(locks(client)) == 1, 20.0, "the ends")
        [kept] = locks(client)
        assert kept.encode() in client.zrange("retry", 0, -1)[0]
    assert client.zcard("dead") == 1


def test_jobs_of_one_key_run_one_after_the_other(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """X-UNIQ-9: the second is put off, and not counted as failed."""
    jobs = [driver.perform_async("GateJob", "one") for _ in range(2)]
    with sidekiq.worker(program="unique.rb", poll=1.0):
        wait_until(lambda: client.zcard("schedule") == 1, 20.0, "the second job in the schedule")
        assert len(started(client)) == 1
        put_off = schedule(client)
        assert put_off["jw_snoozes"] == 1
        assert "retry_count" not in put_off
        open_gate(client, "one", jobs=2)
        wait_until(lambda: len(results(client)) == 2, 40.0, "both jobs")
        wait_until(lambda: no_lock(client), what="the release")
    assert {one["jid"] for one in results(client)} == set(jobs)


def test_a_dropped_duplicate_and_a_started_job(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis
) -> None:
    """X-UNIQ-6: `until_start` is released before the run, `for_time` by its bound alone."""
    assert driver.perform_async("FlakyJob", 1, "a")
    assert driver.perform_async("FlakyJob", 1, "a") is None
    asleep = driver.perform_async("SleepJob", 0)
    with sidekiq.worker(program="unique.rb", poll=None):
        wait_until(lambda: client.zcard("retry") == 1 and results(client), 20.0, "both jobs")
        assert locks(client) == [asleep]
        assert driver.perform_async("FlakyJob", 1, "a")


def test_an_end_in_python_releases_the_lock_of_ruby(
    driver: Driver, app: App, server: Server, client: redis.Redis
) -> None:
    """X-UNIQ-7."""
    ran: list[object] = []
    app.job(name="EchoJob")(lambda *args: ran.append(args))
    assert driver.perform_async("EchoJob", 7)
    with running(app, server):
        wait_until(lambda: ran == [(7,)] and no_lock(client), what="the job and the release")
    assert driver.perform_async("EchoJob", 7)
