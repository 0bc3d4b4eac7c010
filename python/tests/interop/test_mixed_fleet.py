"""Ruby and Python workers side by side on the same queues."""

from __future__ import annotations

import shutil
import signal
import time
from collections import Counter
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import redis
from opentelemetry import baggage, context, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from harness.chroots import CHROOTS
from harness.servers import Server, wait_until
from jobwire import App, Client, PlacedIds, otel
from jobwire.application.config import FetchMode
from jobwire.inspect.shards import ShardStates
from tests.acceptance.test_sentry import sent
from tests.interop.driver import Driver
from tests.interop.python_worker import worker_process, worker_threads
from tests.interop.sidekiq import RUBY, RealSidekiq, results
from tests.server_fixtures import ServerFactory
from tests.workers import Workers, running

pytestmark = pytest.mark.interop

JOBS = 300
FAILING = 30


@pytest.mark.parametrize("fetch", ["reliable", "basic"])
def test_each_job_runs_once(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server, fetch: FetchMode
) -> None:
    """FETCH-1, REL-1, REL-2, STAT-1, STAT-2: and Sidekiq's Stats agree with the executions."""
    queues = ["critical", "default"]
    with (
        sidekiq.worker(queues=queues, concurrency=4) as ruby,
        worker_threads(server.url, queues=queues, concurrency=4, fetch=fetch),
        Client(server.url) as python,
    ):
        half = [[0.01, number] for number in range(JOBS // 2)]
        jids = python.push_bulk("SleepJob", half, queue="critical")
        jids += driver.perform_bulk("SleepJob", half)
        failed = python.push_bulk("FailJob", [[]] * FAILING)
        wait_until(lambda: client.llen("app:results") >= JOBS, 60, "all runs")
        wait_until(lambda: client.zcard("retry") == FAILING, 60, "all failures")
        ruby.stop()  # which writes its last statistics
    reports = results(client)
    assert Counter(report["jid"] for report in reports) == Counter(jids)
    assert {report.get("by") for report in reports} == {"python", None}  # both took part
    assert Counter(record.jid for record in driver.set_list("retry")) == Counter(failed)
    stats = driver.stats()
    assert (stats["processed"], stats["failed"]) == (JOBS + FAILING, FAILING)
    assert (stats["enqueued"], stats["retry_size"]) == (0, FAILING)
    history = "history = Sidekiq::Stats::History.new(2)"
    days = driver.eval(f"{history}; [history.processed, history.failed].map {{ _1.values.sum }}")
    assert days == [JOBS + FAILING, FAILING]


def test_sidekiq_serves_a_shard(
    sidekiq: RealSidekiq, driver: Driver, server: Server, server_factory: ServerFactory
) -> None:
    """Ruby runs, retries and kills the jobs of its shard, and the sums count them."""
    other = server_factory()
    servers = {"ruby": server, "python": other}
    app = App(shards={name: each.url for name, each in servers.items()}, generation=8)
    clients = {name: each.client() for name, each in servers.items()}
    with sidekiq.worker(concurrency=4) as ruby, worker_threads(other.url):
        pushed = app.client.push_bulk("EchoJob", [[number] for number in range(100)])
        assert isinstance(pushed, PlacedIds)
        app.client.push_bulk("FailJob", [[]] * 20, retry=0)
        own = driver.perform_async("EchoJob", "from Ruby")
        expected = {name: {*ids} for name, ids in pushed.shards.items()}
        assert all(len(ids) > 20 for ids in expected.values())
        expected["ruby"].add(str(own))
        for name, client in clients.items():
            wait_until(
                lambda client=client, name=name: (
                    {each["jid"] for each in results(client)}  # type: ignore[misc]
                    == expected[name]
                ),
                60,
                f"the jobs of shard {name}",
            )
        wait_until(lambda: sum(each.zcard("dead") for each in clients.values()) == 20, 60, "deaths")
        ruby.stop()  # which writes its last statistics
    urls = {name: each.url for name, each in servers.items()}
    with closing(App(shards=urls, generation=8)) as new, ShardStates(urls) as states:
        (of_ruby, of_python) = states.reports()
        assert of_ruby.left["dead"] + of_python.left["dead"] == 20
        states.drain(["ruby"])
        later = new.client.push_bulk("EchoJob", [[1]] * 20)
        assert isinstance(later, PlacedIds)
        assert {*later.shards} == {"python"}
    app.close()


def test_pollers_race_for_due_jobs(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server
) -> None:
    """SCHED-5: all jobs are due at one moment, while both pollers look fifty times a second."""
    with (
        sidekiq.worker(queues=["nobody"], poll=0.02),
        worker_threads(server.url, queues=["nobody"], poll=0.02),
        Client(server.url) as python,
    ):
        due = time.time() + 5.5  # both pollers have looked once by then
        half: list[list[Any]] = [[number] for number in range(JOBS // 2)]
        jids = python.push_bulk("EchoJob", half, at=due)
        jids += driver.push_bulk({"class": "EchoJob", "args": half, "at": due})
        wait_until(lambda: client.llen("queue:default") >= JOBS, 60, "all promotions")
        wait_until(lambda: client.zcard("schedule") == 0, 60, "an empty schedule")
    assert time.time() >= due
    with sidekiq.worker(concurrency=4), worker_threads(server.url):
        wait_until(lambda: client.llen("app:results") >= JOBS, 60, "all runs")
    assert Counter(report["jid"] for report in results(client)) == Counter(jids)
    assert driver.queue_size() == 0


def has_run(client: redis.Redis, jid: str) -> bool:
    return any(report["jid"] == jid for report in results(client))


def test_each_language_runs_its_own_classes(
    sidekiq: RealSidekiq, driver: Driver, client: redis.Redis, server: Server
) -> None:
    """X-CLASS-4, X-PARK-2: classes of both in one queue; processes of Python are killed."""
    options = ["--unknown-jobs", "park", "--hand-over", "EchoJob=ruby", "-q", "default", "-c", "4"]

    def python_worker() -> Any:
        return worker_process(server.url, *options, app="tests.interop.app:python_only")

    kills = 0
    numbers: list[list[Any]] = [[number] for number in range(JOBS)]
    with sidekiq.worker(queues=["ruby"]), Client(server.url) as python, python_worker():
        jids = {"EchoJob": driver.perform_bulk("EchoJob", numbers), "PythonJob": []}
        for _ in range(3):
            with python_worker() as killed:
                more = python.push_bulk("PythonJob", numbers)
                jids["PythonJob"] += more
                jids["EchoJob"] += python.push_bulk("EchoJob", numbers)
                wait_until(partial(has_run, client, str(more[0])), 60, "the first job")
                killed.signal(signal.SIGKILL)
                killed.wait()
                kills += 1
        wanted = sum(map(len, jids.values()))
        wait_until(
            lambda: len({report["jid"] for report in results(client)}) >= wanted, 120, "all runs"
        )
        wait_until(lambda: not client.keys("jobwire:private:*"), 60, "the last outcomes")
        wait_until(lambda: driver.stats()["processed"] >= wanted, 60, "Sidekiq's statistics")
        ran = results(client)
        by_python = Counter(one["jid"] for one in ran if one.get("by") == "python")
        by_ruby = Counter(one["jid"] for one in ran if one.get("by") is None)
        assert by_ruby == Counter(jids["EchoJob"])
        assert by_python.keys() == {*jids["PythonJob"]}
        assert (
            by_python.total() <= len(jids["PythonJob"]) + kills * 4
        )  # that ran when it was killed
        assert driver.stats()["failed"] == 0
        assert not client.exists("retry", "dead", "schedule", "jobwire:parked", "queue:default")


TRACING = """
require_relative "jobs"

# As OpenTelemetry's instrumentation does it: the context is in fields of the payload; each push
# writes that of the running job, with a span of its own, over any older one.
class Tracer
  def call(_, job, _)
    Thread.current[:trace] = job["traceparent"]
    Thread.current[:baggage] = job["baggage"]
    yield
  ensure
    Thread.current[:trace] = Thread.current[:baggage] = nil
  end
end

class Injector
  def call(_, job, _, _)
    if (trace = Thread.current[:trace])
      job["traceparent"] = trace.sub(/-[0-9a-f]{16}-/, "-00f067aa0ba902b7-")
      job["baggage"] = Thread.current[:baggage] if Thread.current[:baggage]
    end
    yield
  end
end

Sidekiq.configure_server do |config|
  config.client_middleware { |chain| chain.add(Injector) }
  config.server_middleware { |chain| chain.add(Tracer) }
end

class RelayJob
  include Sidekiq::Job
  def perform = Sidekiq::Client.push("class" => "Middle", "queue" => "python", "args" => [])
end

class LastJob
  include Sidekiq::Job
  def perform = finished(jid, [Thread.current[:trace], Thread.current[:baggage]])
end
"""


def test_a_trace_goes_through_ruby_and_python_and_ruby(
    sidekiq_version: str, server: Server, client: redis.Redis, tmp_path: Path
) -> None:
    """X-ADDON-8, X-ADDON-9: one trace; the span of Ruby's push is the parent of Python's job."""
    for file in RUBY.glob("*.rb"):
        shutil.copy(file, tmp_path)
    (tmp_path / "trace.rb").write_text(TRACING)
    sidekiq = RealSidekiq(sidekiq_version, CHROOTS / sidekiq_version, server.url, tmp_path)
    w3c = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])
    app = App(server.url)
    seen: list[tuple[SpanContext, object]] = []

    @app.job(name="Middle", queue="python")
    def middle() -> None:
        span = trace.get_current_span()
        seen.append((span.get_span_context(), baggage.get_baggage("tenant")))
        app.client.push("LastJob", [])

    otel.instrument(app, style="child", propagator=w3c)
    ours = SpanContext(0xABC, 0xDEF, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))
    with sidekiq.worker(program="trace.rb"), running(app, server, queues={"python": 0}):
        caller = trace.set_span_in_context(NonRecordingSpan(ours))
        token = context.attach(baggage.set_baggage("tenant", "42", caller))
        app.client.push("RelayJob", [])
        context.detach(token)
        wait_until(lambda: results(client), 60, "the last job")
    ((theirs, tenant),) = seen
    assert (theirs.trace_id, theirs.span_id, tenant) == (ours.trace_id, 0x00F067AA0BA902B7, "42")
    [last] = results(client)
    assert last["args"] == [f"00-{ours.trace_id:032x}-00f067aa0ba902b7-01", "tenant=42"]


SENTRY = """
require_relative "jobs"
require "sentry-sidekiq"

Sentry.init do |config|
  config.dsn = "http://key@127.0.0.1:9/1"
  config.traces_sample_rate = 1.0
  config.transport.transport_class = Sentry::DummyTransport
end

class Show
  include Sidekiq::Job
  def perform(*) = finished(jid, [Sentry.get_current_scope.get_span.trace_id])
end
"""
SENTRY_PUSH = """
Sentry.with_scope do |scope|
  transaction = Sentry.start_transaction(name: "web", op: "web")
  scope.set_span(transaction)
  Sidekiq::Client.push("class" => "Divide", "queue" => "python", "args" => [1, 2])
  [transaction.trace_id, transaction.span_id]
end
"""


def test_a_trace_of_sentry_goes_through_ruby_and_python_and_ruby(
    sidekiq_version: str, server: Server, client: redis.Redis, workers: Workers, tmp_path: Path
) -> None:
    """X-ADDON-9, ECO-TR-3: its own packages for Ruby push the first job, and run the last."""
    for file in RUBY.glob("*.rb"):
        shutil.copy(file, tmp_path)
    (tmp_path / "sentry.rb").write_text(SENTRY)
    sidekiq = RealSidekiq(sidekiq_version, CHROOTS / sidekiq_version, server.url, tmp_path)
    workers.start("tests.apps.reporting:app", "--redis", server.url, "-q", "python")
    with sidekiq.worker(program="sentry.rb"):
        with sidekiq.driver(loads="sentry.rb") as driver:
            trace_id, span_id = driver.eval(SENTRY_PUSH)
        wait_until(lambda: results(client), 60, "the last job")
    wait_until(lambda: sent(tmp_path), 60, "the transaction of the job in Python")
    [event] = sent(tmp_path)
    found = event["contexts"]["trace"]
    assert (found["trace_id"], found["parent_span_id"]) == (trace_id, span_id)
    [last] = results(client)
    if sidekiq.generation > 6:  # beside it is Sentry 5.3, which has another field for this
        assert last["args"] == [trace_id]
