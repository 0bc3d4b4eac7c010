"""The inspection API of Sidekiq and ours, with the same Redis: the same answers. [INSP-1]"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast

import pytest
import redis

from harness.servers import Server, wait_until
from jobwire.inspect import Entry, Inspector
from jobwire.protocol.times import Generation
from tests import databases
from tests.interop.driver import Driver, Record
from tests.interop.sidekiq import GENERATIONS, RealSidekiq, results
from tests.interop.test_sidekiq_inspector import INFO, entry

pytestmark = pytest.mark.interop


@pytest.fixture
def inspector(server: Server) -> Iterator[Inspector]:
    with Inspector(server.url) as made:
        yield made


@cache
def states() -> list[tuple[str, list[dict[str, Any]], float]]:
    """Return every captured database with its name and time, those before a step included."""
    found = []
    for version in GENERATIONS:
        for state in databases.recorded(version):
            at = datetime.fromisoformat(state["captured_at"]).timestamp()
            for when in ("before", "redis"):
                if when in state:
                    found.append((f"{version}/{state['name']}/{when}", state[when], at))
    return found


def load(client: redis.Redis, state: list[dict[str, Any]]) -> None:
    databases.load(client, state)
    # No process is pruned meanwhile: a look of Sidekiq's would change the data.
    client.set("process_cleanup", "1")


def near(one: float, other: float) -> bool:
    """Two ages of the same moment, asked for a moment apart."""
    return one == pytest.approx(other, abs=30)


def stats_differ(inspector: Inspector, driver: Driver) -> Iterator[object]:
    ours, theirs = inspector.stats(), driver.stats()
    pairs = {
        "processed": ours.processed,
        "failed": ours.failed,
        "enqueued": ours.enqueued,
        "scheduled_size": ours.scheduled,
        "retry_size": ours.retries,
        "dead_size": ours.dead,
        "workers_size": ours.busy,
        "processes_size": ours.processes,
        "queues": ours.queues,
    }
    yield from ((name, mine, theirs[name]) for name, mine in pairs.items() if mine != theirs[name])


def job_differs(ours: Entry, theirs: Record, generation: int) -> Iterator[object]:
    """Yield the differences of two views of one job, except Sidekiq's known gaps."""
    if ours.payload != theirs.payload or ours.score != theirs.score:
        yield ours, theirs
        return
    # 8.1 writes this wrapper; older readers do not look behind it. [PAY-16]
    wrapped = generation < 8 and ours.class_name == "Sidekiq::ActiveJob::Wrapper"
    shown = wrapped or (generation < 7 and theirs.klass != theirs.display_class)
    if ours.fault is None:
        if json.loads(ours.payload) != theirs.item or ours.args != (theirs.item or {}).get("args"):
            yield "fields", ours, theirs.item
    elif theirs.item != {}:
        yield "readable", ours.problem, theirs.item
    told = not shown and "display_args" not in theirs.raised
    if told and ours.display_args != theirs.display_args:
        yield "display_args", ours.display_args, theirs.display_args
    simple = {
        "jid": (ours.jid, theirs.jid),
        "queue": (ours.queue or None, theirs.queue),
        "class": (ours.class_name or None, theirs.klass),
        "tags": (list(ours.tags), theirs.tags),
    }
    if not wrapped:
        simple["display_class"] = (ours.display_class or None, theirs.display_class)
    for field, (mine, other) in simple.items():
        if mine != other:
            yield field, mine, other
    if ours.error_backtrace != theirs.error_backtrace:
        yield "backtrace", ours.error_backtrace, theirs.error_backtrace
    for field in ("created_at", "enqueued_at", "failed_at", "retried_at"):
        mine, other = getattr(ours, field), getattr(theirs, field)
        # These readers expect the other unit, and show 1970 if there is no time. [GEN-3]
        honest = mine is not None and other is not None and 1e9 < other < 1e11
        if honest and mine != pytest.approx(other, abs=0.002):
            yield field, mine, other


def jobs_differ(inspector: Inspector, driver: Driver, generation: int) -> Iterator[object]:
    names = [each.name for each in inspector.queues()]
    if names != driver.queues():
        yield names, driver.queues()
    for queue in inspector.queues():
        if queue.size != driver.queue_size(queue.name):
            yield queue, driver.queue_size(queue.name)
        latency = driver.queue_latency(queue.name)
        readable = generation == 8 or -1e11 < latency != 0
        if readable and not near(queue.latency, latency):
            yield queue, latency
        mine, theirs = list(inspector.jobs(queue.name)), driver.queue_list(queue.name)
        if len(mine) != len(theirs):
            yield queue, mine, theirs
        for one, other in zip(mine, theirs, strict=False):
            yield from job_differs(one, other, generation)
    for name in ("schedule", "retry", "dead"):
        mine, theirs = list(inspector.entries(name)), driver.set_list(name)
        if len(mine) != len(theirs):
            yield name, mine, theirs
        for one, other in zip(mine, theirs, strict=False):
            yield from job_differs(one, other, generation)


def processes_differ(
    inspector: Inspector, driver: Driver, sidekiq: RealSidekiq
) -> Iterator[object]:
    mine, theirs = inspector.processes(), driver.processes()
    if [one.identity for one in mine] != [other.identity for other in theirs]:
        yield mine, theirs
    for one, other in zip(mine, theirs, strict=False):
        for field in ("identity", "hostname", "pid", "busy", "queues", "labels", "quiet"):
            if getattr(one, field) != getattr(other, field):
                yield field, one, other
        if (one.tag, one.version or None) != (other.tag, other.version):
            yield one, other
        if sidekiq.generation >= 7 and one.embedded != bool(other.info["embedded"]):
            yield one, other
        if (one.rss, one.rtt_us) != (other.info["rss"], other.info["rtt_us"]):
            yield one, other
        # Readers of the writing generation show it; others show nothing or 0. [BEAT-4]
        if other.concurrency and one.concurrency != other.concurrency:
            yield one, other
        if one.started_at != other.info["started_at"] or one.beat != float(other.info["beat"]):
            yield one, other
        capsules = {name: asdict(each) for name, each in one.capsules.items()}
        if capsules != {
            name: {"name": name, **each} for name, each in (other.info["capsules"] or {}).items()
        }:
            yield capsules, other.info["capsules"]


def works_differ(inspector: Inspector, driver: Driver, *, old: bool) -> Iterator[object]:
    """Yield the differences in running jobs, as far as that Sidekiq looks at the key."""
    ours = {
        (each.identity, each.thread): (each.queue, each.run_at, dict(each.job.fields))
        for each in inspector.works()
    }
    theirs = {
        (each.identity, each.tid): (each.queue, each.run_at, each.item) for each in driver.works()
    }
    if old:
        ours = {key: value for key, value in ours.items() if key in theirs}
    if ours != theirs:
        yield ours, theirs


ASK_METRICS = """
q = Sidekiq::Metrics::Query.new(now: Time.at(with["now"]).utc)
show = lambda do |r|
  {"marks" => r.marks.map { |m| [m.time.to_f, m.label] },
   "jobs" => r.job_results.to_h { |name, j| [name, {"totals" => j.totals, "series" => j.series,
     "average" => j.total_avg, "hist" => j.hist}] }}
end
span = with["hours"] ? {hours: with["hours"]} : {minutes: with["minutes"]}
{"all" => show.(q.top_jobs(**span)), "one" => show.(q.for_job(with["class"], **span))}
"""


def metrics_differ(
    server: Server, driver: Driver, at: float, generation: Generation, **span: int
) -> Iterator[object]:
    def bucket(at: float) -> str:
        when = datetime.fromtimestamp(at, UTC)
        return f"{when:%H:%M}" if generation == 7 else f"{when:%Y-%m-%dT%H:%M:00Z}"

    def shown(found: Any) -> dict[str, Any]:
        jobs = {}
        for name, job in found.jobs.items():
            pairs = {"p": job.total.count, "f": job.total.failed, "ms": job.total.ms}
            series = {
                what: {
                    bucket(start): getattr(each, field)
                    for start, each in job.series.items()
                    if getattr(each, field)
                }
                for what, field in (("p", "count"), ("f", "failed"), ("ms", "ms"))
            }
            average = job.total.average_ms
            hist = {bucket(start): list(each)[::-1] for start, each in job.histograms.items()}
            if job.series or hist:  # our answer names a requested class, seen or not
                jobs[name] = (pairs, series, average, hist)
        return {"marks": [[mark.at, mark.label] for mark in found.marks], "jobs": jobs}

    def told(found: Any) -> dict[str, Any]:
        jobs = {}
        for name, job in found["jobs"].items():
            pairs = {what: job["totals"].get(what, 0) for what in ("p", "f", "ms")}
            series = {
                what: {at: each for at, each in job["series"].get(what, {}).items() if each}
                for what in ("p", "f", "ms")
            }
            jobs[name] = (pairs, series, job["average"], job["hist"])
        return {"marks": found["marks"], "jobs": jobs}

    how: dict[str, Any] = span
    with Inspector(server.url, clock=lambda: at) as inspector:
        every = inspector.activity(**how, generation=generation)
        names = [*every.jobs, "NoJob"]
        for name in names:
            theirs = driver.eval(ASK_METRICS, {"now": at, "class": name, **span})
            one = inspector.job_activity(name, **span, generation=generation)
            if shown(every) != told(theirs["all"]):
                yield "all", shown(every), told(theirs["all"])
            if shown(one) != told(theirs["one"]):
                yield "one", shown(one), told(theirs["one"])


def test_the_same_answers_for_every_captured_state(
    sidekiq: RealSidekiq, driver: Driver, inspector: Inspector, server: Server, client: redis.Redis
) -> None:
    """INSP-1, INSP-2, INSP-3, INSP-11, INSP-12: data of all generations, read by each of them.

    MET-1, MET-2, MET-4, MET-5: where Sidekiq has metrics. Named exceptions: readers of another
    generation that misread times, wrappers and the place of the concurrency.
    """
    differences = []
    seen = 0
    with_metrics = 0
    for name, state, at in states():
        load(client, state)
        found: list[object] = []
        found += stats_differ(inspector, driver)
        found += jobs_differ(inspector, driver, sidekiq.generation)
        found += processes_differ(inspector, driver, sidekiq)
        found += works_differ(inspector, driver, old=sidekiq.version[0] != name[0])
        generation: Generation = 7 if sidekiq.generation == 7 else 8
        if sidekiq.generation > 6 and any(each["key"][:2] in ("j|", "h|") for each in state):
            with_metrics += 1
            client.hset(
                f"{datetime.fromtimestamp(at, UTC):%Y%m%d}-marks", "2026-11-20T16:19:00Z", "v1"
            )
            found += metrics_differ(server, driver, at + 120, generation, minutes=60)
            if sidekiq.generation == 8:
                found += metrics_differ(server, driver, at + 120, generation, hours=24)
        differences += [(name, each) for each in found]
        seen += 1
    assert differences == []
    assert seen > 150
    assert with_metrics > 10 or sidekiq.generation == 6


# -- Writes of our inspector, compared with those of each Sidekiq's API for the same action


def everything(client: redis.Redis) -> dict[str, Any]:
    """Return queues and sets with their payloads decoded, keys in their order, times as types."""

    def shown(text: bytes) -> Any:
        pairs = json.loads(text, object_pairs_hook=list)
        return [[k, type(v).__name__ if k == "enqueued_at" else v] for k, v in pairs]

    found: dict[str, Any] = {"queues": client.smembers("queues")}
    for key in sorted(cast("list[bytes]", client.keys("queue:*"))):
        found[key.decode()] = [
            shown(each) for each in cast("list[bytes]", client.lrange(key, 0, -1))
        ]
    for name in ("schedule", "retry", "dead"):
        scored = cast("Any", client.zrange(name, 0, -1, withscores=True))
        # The time of a death is now, but for jobs that died long ago.
        found[name] = [
            [shown(text), "now" if abs(score - time.time()) < 60 else score]
            for text, score in scored
        ]
    return found


def member(jid: str, generation: int, **fields: Any) -> str:
    created = 1795192067250 if generation == 8 else 1795192067.25
    return entry(jid, created_at=created, **fields)


@pytest.mark.parametrize("name", ["retry", "schedule", "dead"])
@pytest.mark.parametrize("action", ["retry", "add_to_queue", "kill", "delete", "reschedule"])
def test_the_same_is_left_as_by_sidekiq(
    sidekiq: RealSidekiq,
    driver: Driver,
    inspector: Inspector,
    client: redis.Redis,
    action: str,
    name: Any,
) -> None:
    """INSP-4 to INSP-8: queue, set and payload, field by field in its order."""
    if (action, name) == ("kill", "dead") and sidekiq.generation < 7:
        pytest.skip("a dead entry stays where it is in any case")

    def prepare() -> None:
        client.delete("queues", "queue:default", "queue:low", "retry", "schedule", "dead")
        far = 4e9
        client.zadd(name, {member("a" * 24, sidekiq.generation, retry_count=3): far})
        client.zadd(name, {member("b" * 24, sidekiq.generation, queue="low", x=[1.5]): far})
        client.zadd(
            name, {member("c" * 24, sidekiq.generation).replace(',"retry_count":0', ""): 5e9}
        )

    def act_there(jid: str) -> None:
        if action == "reschedule":
            driver.reschedule(name, jid, 4.5e9)
        else:
            getattr(driver, action)(name, jid)

    def act_here(jid: str) -> None:
        found = inspector.find(name, jid)
        assert found is not None
        if action == "reschedule":
            assert inspector.reschedule(found, 4.5e9)
        else:
            assert getattr(inspector, action)(found)

    # A process of that generation decides the form of times. [GEN-5]
    client.sadd("processes", "a:1:0123456789ab")
    info = {**INFO, "identity": "a:1:0123456789ab", "version": sidekiq.version}
    client.hset("a:1:0123456789ab", "info", json.dumps(info))
    left = []
    for act in (act_there, act_here):
        prepare()
        act("b" * 24)
        act("c" * 24)
        left.append(everything(client))
    assert left[0] == left[1]


@pytest.mark.parametrize("action", ["retry", "kill"])
def test_all_of_a_set(
    sidekiq: RealSidekiq,
    driver: Driver,
    inspector: Inspector,
    client: redis.Redis,
    action: Any,
) -> None:
    """INSP-5, INSP-7: "retry all" and "kill all" of the retry set, in Sidekiq's order of 8.1."""
    left = []
    for theirs in (True, False):
        client.delete("queues", "queue:default", "retry", "dead")
        for number in range(30):
            payload = member(f"{number:024x}", sidekiq.generation, retry_count=number)
            client.zadd("retry", {payload: 4e9 + number})
        client.sadd("processes", "a:1:0123456789ab")
        info = {**INFO, "identity": "a:1:0123456789ab", "version": sidekiq.version}
        client.hset("a:1:0123456789ab", "info", json.dumps(info))
        if theirs:
            driver.set_call("retry", f"{action}_all")
        else:
            assert inspector.sweep("retry", action).done == 30
        found = everything(client)
        if sidekiq.generation < 8:
            found.get("queue:default", []).sort(key=str)  # highest score first
        found["dead"].sort(key=str)  # each has its own score with Sidekiq
        left.append(found)
    assert left[0] == left[1]


def test_a_worker_of_sidekiq_takes_what_was_retried(
    sidekiq: RealSidekiq, driver: Driver, inspector: Inspector, client: redis.Redis
) -> None:
    """INSP-5: the job runs as after Sidekiq's own retry."""
    client.zadd("retry", {member("a" * 24, sidekiq.generation): 4e9})
    found = inspector.find("retry", "a" * 24)
    assert found is not None
    assert inspector.retry(found)
    with sidekiq.worker():
        wait_until(lambda: results(client), 60, "the job")
    assert results(client)[0]["jid"] == "a" * 24


def test_a_process_is_told_to_be_quiet_and_to_stop(
    sidekiq: RealSidekiq, inspector: Inspector
) -> None:
    """INSP-13: through Redis; the process acts at its next heartbeat."""
    with sidekiq.worker() as worker:
        inspector.quiet(worker.identity)
        wait_until(lambda: inspector.processes()[0].quiet, 60, "quiet")
        inspector.stop(worker.identity)
        assert worker.wait(within=40) == 0
    assert inspector.processes() == []


def test_a_deployment_is_marked_alike(
    sidekiq: RealSidekiq, driver: Driver, inspector: Inspector, client: redis.Redis
) -> None:
    """MET-5: keys, stamp and times to live; each side reads the mark of the other."""
    if sidekiq.generation < 7:
        pytest.skip("deploy marks exist from 7.0 on")
    driver.eval('require "sidekiq/deploy"; Sidekiq::Deploy.mark!("v1")')
    assert inspector.mark_deploy("v2") in (
        True,
        False,
    )  # the minute may have its label already
    assert not inspector.mark_deploy("v1")
    labels = [mark.label for mark in inspector.activity(minutes=5).marks]
    theirs = driver.eval("Sidekiq::Metrics::Query.new.top_jobs(minutes: 5).marks.map(&:label)")
    assert labels == theirs
    assert "v1" in labels
