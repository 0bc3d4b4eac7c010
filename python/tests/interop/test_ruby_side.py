"""Unique jobs, limits and batches of Ruby and Python on one Redis: examples/ruby/jobwire.rb in a
real Sidekiq.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import redis

from harness.chroots import CHROOTS
from harness.servers import Server, wait_until
from jobwire import App, DuplicateJob, Limit
from tests.interop.driver import Driver, RubyError
from tests.interop.sidekiq import ROOT, RealSidekiq, open_gate, results, started, with_jobwire
from tests.workers import running

VECTORS = json.loads((ROOT / "fixtures" / "vectors" / "unique-keys.json").read_text("utf-8"))


@pytest.fixture
def sidekiq(sidekiq_version: str, server: Server, tmp_path: Path) -> RealSidekiq:
    """A real Sidekiq with the Ruby side of unique jobs, limits and batches."""
    chroot = CHROOTS / sidekiq_version
    return RealSidekiq(sidekiq_version, chroot, server.url, with_jobwire(tmp_path))


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


def test_the_limit_of_a_job_is_that_of_every_language(
    driver: Driver, app: App, client: redis.Redis
) -> None:
    """X-LIMIT-1, X-LIMIT-2: with a key, which a long text replaces by its digest, and a cost."""
    limit = Limit("keyed", at_once=3, by=["first"], cost=2)
    job = app.job(name="KeyedJob", limit=limit)(lambda first, second=None: None)
    for first in ({"b": 1.5, "a": ["é"]}, "x" * 100):
        driver.perform_async("KeyedJob", first, 2)
        job.enqueue(first, 2)
        texts = cast("list[bytes]", client.lrange("queue:default", 0, 1))
        python, ruby = (json.loads(text)["jw_limit"] for text in texts)
        assert python == ruby
    with pytest.raises(RubyError, match="is not a limit"):
        driver.perform_async("WindowJob", 1, 3)


def test_both_sides_keep_one_limit(
    sidekiq: RealSidekiq, driver: Driver, app: App, server: Server, client: redis.Redis
) -> None:
    """X-LIMIT-3, X-LIMIT-5 to X-LIMIT-7: two at once in all, each job once, nothing is left."""
    ran: list[int] = []
    enter = driver.eval("SlotJob::ENTER", [])

    @app.job(name="Slot", queue="python", limit=Limit("api", at_once=2))
    def slot(number: int) -> None:
        client.eval(enter, 3, "app:inside", "app:most", "app:starts")
        client.decr("app:inside")
        ran.append(number)

    with (
        sidekiq.worker(program="unique.rb", concurrency=4, poll=1.0),
        running(app, server, queues={"python": 0}, concurrency=4),
    ):
        for number in range(30):
            driver.perform_async("SlotJob", number)
            slot.enqueue(number)
        wait_until(lambda: len(ran) == len(results(client)) == 30, 60.0, "all jobs")
        wait_until(
            lambda: not client.exists("schedule", "jobwire:limit:api:held"), what="free slots"
        )
    assert sorted(ran) == sorted(one["args"][0] for one in results(client)) == [*range(30)]
    assert int(cast("bytes", client.get("app:most"))) == 2
    assert client.zcard("retry") == 0
    shown = json.loads(cast("list[bytes]", client.zrange("jobwire:limits", 0, -1))[0])
    assert client.zcard("jobwire:limits") == 1
    assert shown == {"at_once": 2, "key": "", "name": "api"}


@pytest.mark.parametrize(("job", "burst", "seconds"), [("RateJob", 1, 0.2), ("WindowJob", 2, 1)])
def test_a_rate_and_a_window_in_ruby(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, job: str, burst: int, seconds: float
) -> None:
    """X-LIMIT-8 to X-LIMIT-11: a job over the limit waits in the schedule, and is not counted."""
    now = client.time()
    before = now[0] + now[1] / 1e6
    for number in range(7):
        driver.perform_async(job, number)
    with sidekiq.worker(program="unique.rb", concurrency=2, poll=0.2):
        wait_until(lambda: len(results(client)) == 7, 40.0, "all jobs")
    starts = sorted(
        int(one) / 1e6 for one in cast("list[bytes]", client.lrange("app:starts", 0, -1))
    )
    for number, start in enumerate(starts):
        assert start >= before + (number - burst * (job == "RateJob")) // burst * seconds
    assert not client.exists("retry", "schedule")


def test_a_long_job_in_ruby_keeps_its_slot(driver: Driver, client: redis.Redis) -> None:
    """X-LIMIT-4: its lease begins anew; and its end frees the slot."""
    code = """
      Jobwire::Limit.send(:remove_const, :RENEWED)
      Jobwire::Limit::RENEWED = 0.05
      held = "jobwire:limit:api:held"
      ends = -> { Float(redis("ZRANGE", held, 0, 0, "WITHSCORES").flatten.last) }
      job = {"jid" => "j", "jw_limit" => {"name" => "api", "at_once" => 1}}
      Jobwire::Limit.within(job, "default") do
        first = ends.call
        200.times { (ends.call > first) ? break : sleep(0.05) }
        ends.call - first
      end
    """
    assert driver.eval(code, None) > 0
    assert not client.exists("jobwire:limit:api:held")


def test_batches_in_batches_of_both_sides(
    sidekiq: RealSidekiq, driver: Driver, app: App, client: redis.Redis
) -> None:
    """X-BATCH-9 to X-BATCH-11: Ruby makes inner batches, and ends those of Python."""
    member = app.job(name="MemberJob")(lambda what: None)
    dying = app.job(name="DyingMemberJob", retry=0)(lambda what: None)
    with app.batch(on_success=member.s("all"), on_death=member.s("died")) as outer:
        with app.batch(parent=outer, on_success=member.s("inner")) as inner:
            inner.add(member.s("one"), member.s("two"))
        code = """
          around = Jobwire::Batch.new(with, "default")
          Jobwire::Batch.open(parent: around, on_success: [MemberJob, "ruby"]) do |inner|
            MemberJob.perform_async("three")
            Jobwire::Batch.open(parent: inner) { MemberJob.perform_async("four") }
          end.id
        """
        made = driver.eval(code, outer.id)
    with app.batch(on_complete=member.s("ended"), on_death=member.s("died")) as second:
        with app.batch(parent=second, on_success=member.s("never")) as dies:
            dies.add(dying.s("fails"))
        with app.batch(parent=second) as cancelled, app.batch(parent=cancelled) as within:
            within.add(member.s("never"))
        cancelled.cancel()
    with sidekiq.worker(program="unique.rb", poll=None):
        wait_until(lambda: complete(client, outer.id) and complete(client, second.id), 20.0)
        wait_until(lambda: len(results(client)) == 9, what="the callbacks")
    done = sorted(one["args"][0] for one in results(client))
    assert done == ["all", "died", "ended", "four", "inner", "one", "ruby", "three", "two"]
    assert complete(client, made)
    assert client.smembers(f"jobwire:batch:{second.id}:failed") == {
        f"batch:{batch.id}".encode() for batch in (dies, cancelled)
    }
    with pytest.raises(RubyError, match="batches are at most 8 deep"):
        driver.eval(
            "Jobwire::Batch.open(parent: with.reduce(nil) { |outer, id| "
            'Jobwire::Batch.new(id, "q", outer) }) {}',
            list("abcdefgh"),
        )


def complete(client: redis.Redis, batch: str) -> bool:
    return client.hget(f"jobwire:batch:{batch}", "state") == b"complete"


def test_a_batch_of_ruby(sidekiq: RealSidekiq, driver: Driver, client: redis.Redis) -> None:
    """X-BATCH-1 to X-BATCH-5, X-BATCH-8: callbacks once, also after members that members add."""
    code = """
      made = Jobwire::Batch.open(on_success: [MemberJob, "all"], description: "album") do
        with.each { |text| MemberJob.perform_async(text) }
      end
      made.id
    """
    batch = driver.eval(code, ["adds", "b"])
    assert client.scard(f"jobwire:batch:{batch}:open") == 2
    dying = driver.eval(
        """
      Jobwire::Batch.open(on_death: [MemberJob, "died"], on_complete: [MemberJob, "ended"],
                          on_success: [MemberJob, "never"]) do
        DyingMemberJob.perform_async("fails")
        MemberJob.set(retry: false).perform_async("fails")
      end.id
    """,
        [],
    )
    cancelled = driver.eval(
        """
      begin
        Jobwire::Batch.open(on_complete: [MemberJob, "never"]) do |batch|
          with << batch.id
          MemberJob.perform_async("never")
          raise "stops"
        end
      rescue RuntimeError
        with.first
      end
    """,
        [],
    )
    with sidekiq.worker(program="unique.rb", poll=None):
        wait_until(lambda: complete(client, batch) and complete(client, dying), 20.0, "the ends")
        wait_until(lambda: client.llen("queue:default") == 0, what="the callbacks")
        wait_until(lambda: len(results(client)) == 6, what="the callbacks")
    done = sorted(one["args"][0] for one in results(client))
    assert done == ["added", "adds", "all", "b", "died", "ended"]
    assert client.hget(f"jobwire:batch:{batch}", "total") == b"3"
    assert client.hget(f"jobwire:batch:{dying}", "on_success")
    assert client.scard(f"jobwire:batch:{dying}:failed") == 2
    assert client.hget(f"jobwire:batch:{cancelled}", "state") == b"cancelled"
    assert client.scard(f"jobwire:batch:{cancelled}:open") == 0
    with pytest.raises(RubyError, match=f"batch {batch} is complete"):
        driver.eval(
            'Jobwire::Batch.new(with, "default").jobs { MemberJob.perform_async(1) }', batch
        )
    with pytest.raises(RubyError, match="EchoJob takes its lock with the push"):
        driver.eval("Jobwire::Batch.open { EchoJob.perform_async(1) }", [])


def test_a_batch_of_both_sides(
    sidekiq: RealSidekiq, driver: Driver, app: App, server: Server, client: redis.Redis
) -> None:
    """X-BATCH-5: members of both end in it, and its callback runs once, in Python."""
    ran: list[str] = []
    job = app.job(name="Note", queue="python")(ran.append)
    member = app.job(name="MemberJob")(lambda what: None)
    with app.batch(on_success=job.s("all")) as batch:
        batch.add_all(each for _ in range(20) for each in (job.s("one"), member.s("b")))
    with (
        sidekiq.worker(program="unique.rb", poll=None),
        running(app, server, queues={"python": 0}),
    ):
        wait_until(lambda: ran.count("all") == 1, 30.0, "the callback")
    assert len(ran) == 21
    assert len(results(client)) == 20
