"""jobwire.otel: one trace from a producer in Ruby to a worker in Python, and on to the next."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import baggage, context, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, format_span_id, format_trace_id
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from harness.servers import Server, wait_until
from jobwire import App, AsyncClient, Client, ConfigError, Job, TryAgain, otel
from jobwire.protocol.payload import decode, encode
from jobwire.worker.execute.isolation_parent import Isolation
from tests.apps import traced
from tests.rows import over
from tests.workers import running

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
W3C = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])

# As OpenTelemetry's instrumentation for Ruby writes it: the headers are fields of the payload.
BY_RUBY = (
    '{"retry":true,"queue":"default","class":"First","args":["r\\u00e9sum\\u00e9",1.0],'
    '"jid":"b4a577edbccf1d805744efa9","created_at":1788220800123,'
    f'"traceparent":"00-{TRACE}-{SPAN}-01","tracestate":"vendor=value",'
    '"baggage":"tenant=42","enqueued_at":1788220800124}'
)


class Recorder:
    """Providers that keep the spans and the metrics in memory."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def instrument(self, app: App, style: otel.Style = "link") -> None:
        otel.instrument(
            *(app,),
            style=style,
            tracer_provider=self.tracers,
            meter_provider=self.meters,
            propagator=W3C,
        )

    def spans(self, name: str) -> Sequence[ReadableSpan]:
        return [span for span in self.exporter.get_finished_spans() if span.name == name]

    def wait(self, name: str, count: int = 1) -> Sequence[ReadableSpan]:
        wait_until(lambda: len(self.spans(name)) >= count, 30, name)
        return self.spans(name)

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    recorder = Recorder()
    yield recorder
    recorder.tracers.shutdown()
    recorder.meters.shutdown()


def ids(span: ReadableSpan) -> tuple[str, str]:
    assert span.context is not None
    return format_trace_id(span.context.trace_id), format_span_id(span.context.span_id)


def header(span: ReadableSpan) -> str:
    """Return `traceparent`; the flags also say if the id is random."""
    assert span.context is not None
    return "00-{}-{}-{:02x}".format(*ids(span), span.context.trace_flags)


def parent(span: ReadableSpan) -> str | None:
    return None if span.parent is None else format_span_id(span.parent.span_id)


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def shop(recorder: Recorder, style: otel.Style = "link") -> App:
    app = App()

    @app.job(name="First")
    def first(text: str, number: float) -> None:
        second.options(queue="later").enqueue()

    @app.job(name="Second")
    def second() -> None: ...

    @app.job(name="Native")
    async def native() -> None:
        await second.options(queue="later").aenqueue()

    @app.job(name="Bad")
    def bad() -> None:
        raise ValueError("out of stock")

    @app.job(name="Unlucky")
    def unlucky() -> None:
        raise TryAgain

    recorder.instrument(app, style)
    return app


def queued(server: Server, queue: str) -> dict[str, Any]:
    stored: Any = wait_until(lambda: server.client().lindex(f"queue:{queue}", 0))
    payload: dict[str, Any] = json.loads(stored)
    return payload


@pytest.mark.parametrize("style", ["link", "child"])
def test_a_trace_goes_on_from_ruby_through_python(
    server: Server, recorder: Recorder, style: otel.Style
) -> None:
    """X-ADDON-8, X-ADDON-9: headers of the payload in, those of the next payload out."""
    server.client().lpush("queue:default", BY_RUBY)
    with running(shop(recorder, style), server):
        (execution,) = recorder.wait("process default")
    (push,) = recorder.spans("publish later")
    payload = queued(server, "later")
    assert execution.kind is SpanKind.CONSUMER
    assert push.kind is SpanKind.PRODUCER
    linked = [format_span_id(link.context.span_id) for link in execution.links]
    if style == "link":
        assert (parent(execution), linked) == (None, [SPAN])
        assert format_trace_id(execution.links[0].context.trace_id) == TRACE
        assert ids(execution)[0] != TRACE
    else:
        assert (parent(execution), linked) == (SPAN, [])
        assert ids(execution)[0] == TRACE
        assert payload["tracestate"] == "vendor=value"
    assert (ids(push)[0], parent(push)) == ids(execution)
    assert payload["traceparent"] == header(push)
    assert payload["baggage"] == "tenant=42"
    assert attributes(execution) == {
        "messaging.system": "sidekiq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "default",
        "messaging.message.id": "b4a577edbccf1d805744efa9",
        "messaging.sidekiq.job_class": "First",
    }
    assert attributes(push) == {
        "messaging.system": "sidekiq",
        "messaging.operation.name": "publish",
        "messaging.operation.type": "send",
        "messaging.destination.name": "later",
        "messaging.message.id": payload["jid"],
        "messaging.sidekiq.job_class": "Second",
    }


@pytest.mark.parametrize("style", ["link", "child"])
def test_async_jobs_too(server: Server, recorder: Recorder, style: otel.Style) -> None:
    server.client().lpush("queue:default", BY_RUBY.replace("First", "Native").replace(
        '"args":["r\\u00e9sum\\u00e9",1.0]', '"args":[]'))  # fmt: skip
    with running(shop(recorder, style), server):
        (execution,) = recorder.wait("process default")
    (push,) = recorder.spans("publish later")
    assert (ids(push)[0], parent(push)) == ids(execution)
    assert queued(server, "later")["traceparent"] == header(push)


def test_a_retry_keeps_the_context_of_the_push(server: Server, recorder: Recorder) -> None:
    """X-ADDON-10: the retry's payload is the fetched one; its bytes stay but for the failure."""
    text = BY_RUBY.replace("First", "Bad").replace('"args":["r\\u00e9sum\\u00e9",1.0]', '"args":[]')
    server.client().lpush("queue:default", text)
    with running(shop(recorder), server):
        (failed,) = recorder.wait("process default")
        (member,) = wait_until(lambda: server.client().zrange("retry", 0, -1))
        assert member.startswith(text.removesuffix("}").encode())
        server.client().lpush("queue:default", member)
        _, again = recorder.wait("process default", 2)
    assert [link.context.span_id for link in again.links] == [int(SPAN, 16)]
    assert attributes(again)["messaging.sidekiq.retry_count"] == 0
    assert failed.status.status_code is StatusCode.ERROR
    assert attributes(failed)["error.type"] == "ValueError"
    (event,) = failed.events
    assert event.attributes is not None
    assert event.attributes["exception.message"] == "out of stock"
    durations = recorder.points("messaging.process.duration")
    assert sum(point.count for point in durations) == 2
    assert {point.attributes["error.type"] for point in durations} == {"ValueError"}


def test_an_expected_failure_is_no_error(server: Server, recorder: Recorder) -> None:
    with running(shop(recorder), server) as launcher:
        launcher.app.jobs["Unlucky"].enqueue()
        (span,) = recorder.wait("process default")
    assert span.status.status_code is StatusCode.UNSET
    assert attributes(span)["error.type"] == "TryAgain"


def test_without_an_sdk_payloads_stay_as_they_are(server: Server) -> None:
    """Nothing is recorded, so there is nothing to carry."""
    plain, instrumented = App(server.url), App(server.url)
    otel.instrument(instrumented, propagator=W3C)
    for app in (plain, instrumented):
        app.client_middleware.add(lambda item, call_next: call_next())
        app.job(name="A")(_nothing).enqueue()
        app.close()
    stored: Any = server.client().lrange("queue:default", 0, -1)
    first, second = map(json.loads, stored)
    assert [*first] == [*second]


def _nothing() -> None: ...


def test_a_push_continues_the_trace_of_its_caller(server: Server, recorder: Recorder) -> None:
    """Also for a client without an application, in bulk, and for asyncio."""
    tracer = recorder.tracers.get_tracer("test")
    middleware = otel.producer(
        tracer_provider=recorder.tracers, meter_provider=recorder.meters, propagator=W3C
    )
    token = context.attach(baggage.set_baggage("tenant", "7"))
    with (
        Client(server.url, middleware=[middleware]) as client,
        tracer.start_as_current_span("request") as request,
    ):
        client.push("A", [1], fields={"traceparent": "stale"})
        client.push_bulk("A", [[2], [3]], queue="bulk")
    context.detach(token)
    payload = queued(server, "default")
    (push,) = recorder.spans("publish default")
    assert payload["traceparent"] == header(push)
    assert payload["baggage"] == "tenant=7"
    assert push.parent is not None
    assert push.parent.span_id == request.get_span_context().span_id
    assert len(recorder.spans("publish bulk")) == 2
    stored: Any = server.client().lrange("queue:bulk", 0, -1)
    assert len({json.loads(text)["traceparent"] for text in stored}) == 2
    assert sum(p.value for p in recorder.points("messaging.client.sent.messages")) == 3


async def _push(url: str, *middleware: Any) -> None:
    async with AsyncClient(url, middleware=[*middleware]) as client:
        await client.push("A", [1])


def test_the_middleware_surrounds_async_middleware(server: Server, recorder: Recorder) -> None:
    import asyncio

    seen: list[bool] = []

    async def inner(item: Any, call_next: Any) -> Any:
        await asyncio.sleep(0)
        seen.append("traceparent" in item)
        return await call_next()

    traced = otel.producer(tracer_provider=recorder.tracers, propagator=W3C)
    asyncio.run(_push(server.url, traced, inner))
    assert seen == [True]
    assert "traceparent" in queued(server, "default")


def test_an_unknown_style_is_refused() -> None:
    with pytest.raises(ConfigError, match="style: 'parent' is not one of 'link', 'child'"):
        otel.instrument(App(), style="parent")  # type: ignore[arg-type]


# -- forms of other instrumentations


def job(**fields: Any) -> Job:
    return decode(encode({"class": "A", "args": [], "jid": "1", **fields}), "default")


HEADER = f"00-{TRACE}-{SPAN}-01"
FORMS: dict[str, dict[str, Any]] = {
    "OpenTelemetry": {"traceparent": HEADER},
    "ActiveJob": {"args": [{"__otel_headers": [["traceparent", HEADER]]}]},
    "ActiveJob before the payload": {
        "args": [{"__otel_headers": [["traceparent", HEADER]]}],
        "traceparent": HEADER.replace(SPAN, "1" * 16),
    },
    "AppSignal, object": {"__otel_headers": {"traceparent": HEADER}},
    "AppSignal, pairs": {"__otel_headers": [["traceparent", HEADER]]},
    "New Relic": {"newrelic": {"newrelic": "base64", "traceparent": HEADER}},
    "Sentry": {"trace_propagation_headers": {"sentry-trace": f"{TRACE}-{SPAN}-1"}},
    "Sentry, open": {"trace_propagation_headers": {"sentry-trace": f"{TRACE}-{SPAN}-"}},
    "Sentry, old": {"sentry_trace": f"{TRACE}-{SPAN}-1"},
    "Sentry, short": {"trace_propagation_headers": {"sentry-trace": f"{TRACE}-{SPAN}"}},
    "Datadog": {
        "x-datadog-trace-id": str(int(TRACE[16:], 16)),
        "x-datadog-parent-id": str(int(SPAN, 16)),
        "x-datadog-sampling-priority": "1",
        "x-datadog-tags": f"_dd.p.dm=-1,_dd.p.tid={TRACE[:16]}",
    },
}


@over("form", FORMS)
def test_contexts_of_other_instrumentations_are_read(form: str) -> None:
    """ECO-TR-2, ECO-TR-3, ECO-TR-5, ECO-TR-6, ECO-TR-8, ECO-TR-15."""
    found = trace.get_current_span(otel.extract(job(**FORMS[form]), W3C)).get_span_context()
    assert (format_trace_id(found.trace_id), format_span_id(found.span_id)) == (TRACE, SPAN)
    assert found.is_remote
    assert found.trace_flags.sampled


def test_decisions_not_to_sample_are_kept() -> None:
    for fields in (
        {"traceparent": HEADER[:-2] + "00"},
        {"trace_propagation_headers": {"sentry-trace": f"{TRACE}-{SPAN}-0"}},
        {**FORMS["Datadog"], "x-datadog-sampling-priority": "-1"},
    ):
        found = trace.get_current_span(otel.extract(job(**fields), W3C)).get_span_context()
        assert found.is_valid
        assert not found.trace_flags.sampled


def test_the_baggage_of_the_payload_stays_beside_a_foreign_trace() -> None:
    found = otel.extract(job(**FORMS["Sentry"], baggage="a=1"), W3C)
    assert baggage.get_all(found) == {"a": "1"}
    assert trace.get_current_span(found).get_span_context().is_valid


@over(
    "value",
    [None, 1, True, "", "x", "00-" + "0" * 32 + "-" + "0" * 16 + "-01", [], {}, [[1]], "\n"],
)
def test_odd_values_are_no_context(value: Any) -> None:
    """A payload may hold anything; the job runs without a link then."""
    for fields in (
        {"traceparent": value, "tracestate": value, "baggage": value},
        {"__otel_headers": value},
        {"args": [{"__otel_headers": value}]},
        {"args": value},
        {"newrelic": value},
        {"newrelic": {"traceparent": value}},
        {"trace_propagation_headers": value},
        {"trace_propagation_headers": {"sentry-trace": value}},
        {"sentry_trace": value},
        {"x-datadog-trace-id": value, "x-datadog-parent-id": value},
        {"x-datadog-trace-id": "9" * 20, "x-datadog-parent-id": "9" * 20},
    ):
        found = otel.extract(job(**fields), W3C)
        assert not trace.get_current_span(found).get_span_context().is_valid


@pytest.mark.process
def test_an_isolated_job_carries_the_context_of_its_push(tmp_path: Path) -> None:
    """Its process has no span, so the jobs that it enqueues belong to the push."""
    traced.app.connect("redis://localhost:1/5")
    file = tmp_path / "carrier"
    with Isolation(traced.app.jobs.values(), size=1) as isolation:
        isolation.run(
            job(args=[str(file)], traceparent=HEADER), traced.app.jobs["Look"], timeout=None
        )
    assert json.loads(file.read_text()) == {"traceparent": HEADER}
