"""Traces by OpenTelemetry, across producers and workers in Ruby and Python.

    from jobwire.otel import instrument

    instrument(app)

Each push is a span of kind producer, each execution a span of kind consumer. The context travels in
the payload, in the fields `traceparent`, `tracestate` and `baggage`, where OpenTelemetry for Ruby
writes and reads it. Contexts that Sentry, Datadog, New Relic and ActiveJob write are read.

It needs the extra `jobwire[otel]`. The SDK and the exporter are those of the application; without
them nothing is recorded, and payloads stay as they are.
"""

from __future__ import annotations

import re
import time
from asyncio import CancelledError
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Literal

from opentelemetry import baggage, context, metrics, propagate, trace
from opentelemetry.context import Context
from opentelemetry.metrics import MeterProvider
from opentelemetry.propagators.textmap import TextMapPropagator
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TracerProvider,
)
from opentelemetry.util.types import AttributeValue

from jobwire._version import __version__
from jobwire.application.app import App
from jobwire.application.hooks import Around
from jobwire.errors import ConfigError, Shutdown, TryAgain
from jobwire.protocol.iteration import Interrupted
from jobwire.protocol.normalize import ClientMiddleware, JobFields
from jobwire.protocol.payload import Job

__all__ = ["Style", "consumer", "extract", "instrument", "producer"]

Style = Literal["link", "child"]
"""`link`: an execution begins a trace of its own, with a link to the push. `child`: it continues
the trace of the push."""

SYSTEM = "sidekiq"  # the value of `messaging.system` that Ruby's instrumentation uses
_SENTRY = re.compile(r"([0-9a-f]{32})-([0-9a-f]{16})(?:-([01])?)?")
_in_worker: ContextVar[bool] = ContextVar("jobwire_otel_in_worker", default=False)


def instrument(
    app: App,
    *,
    style: Style = "link",
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    propagator: TextMapPropagator | None = None,
) -> None:
    """Trace the pushes and the executions of an application.

    Call it once, after the application's own middleware was added: its spans surround that.

    Args:
        app: The application.
        style: Relation of an execution to its push; see `Style`.
        tracer_provider: By default the global one.
        meter_provider: By default the global one.
        propagator: Writes and reads the context; by default the global one, which is that of the
            W3C unless the application or `OTEL_PROPAGATORS` chooses another.

    Raises:
        ConfigError: The style is unknown.
    """
    app.client_middleware.prepend(
        producer(
            tracer_provider=tracer_provider, meter_provider=meter_provider, propagator=propagator
        )
    )
    app.outermost.insert(
        0,
        consumer(
            style,
            tracer_provider=tracer_provider,
            meter_provider=meter_provider,
            propagator=propagator,
        ),
    )
    app.around.insert(0, _carry_into_child(propagator))


def producer(
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    propagator: TextMapPropagator | None = None,
) -> ClientMiddleware:
    """Return client middleware that traces each push, and writes the context into the payload.

    [X-ADDON-8]

    For a `Client` without an application: `Client(middleware=[producer()])`. The parameters
    are those of `instrument`.
    """
    tracer = trace.get_tracer("jobwire", __version__, tracer_provider)
    sent = metrics.get_meter("jobwire", __version__, meter_provider).create_counter(
        "messaging.client.sent.messages", "{message}", "Jobs that were pushed."
    )

    def middleware(item: JobFields, call_next: Callable[[], JobFields | None]) -> JobFields | None:
        queue = str(item.get("queue", ""))
        attributes = _attributes("publish", "send", queue)
        more = _job_attributes(item.get("jid"), item.get("wrapped") or item.get("class"))
        with tracer.start_as_current_span(
            f"publish {queue}", kind=SpanKind.PRODUCER, attributes={**attributes, **more}
        ):
            carrier: dict[str, str] = {}
            (propagator or propagate.get_global_textmap()).inject(carrier)
            item.update(carrier)
            sent.add(1, attributes)
            return call_next()

    return middleware


def consumer(
    style: Style = "link",
    *,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
    propagator: TextMapPropagator | None = None,
) -> Around:
    """Return a wrapper for `app.wrap` that traces each execution.

    The parameters are those of `instrument`. A failed execution is a span with an error. An
    execution that a stop of the worker interrupts, and one of an iterable job that gives way, are
    not failed.

    Raises:
        ConfigError: The style is unknown.
    """
    if style not in ("link", "child"):
        raise ConfigError(f"style: {style!r} is not one of 'link', 'child'")
    tracer = trace.get_tracer("jobwire", __version__, tracer_provider)
    duration = metrics.get_meter("jobwire", __version__, meter_provider).create_histogram(
        "messaging.process.duration", "s", "Duration of executions."
    )

    @contextmanager
    def around(job: Job) -> Iterator[None]:
        pushed = extract(job, propagator)
        push = trace.get_current_span(pushed).get_span_context()
        links = [Link(push)] if style == "link" and push.is_valid else []
        if style == "link":
            pushed = trace.set_span_in_context(trace.INVALID_SPAN, pushed)
        attributes = _attributes("process", "process", job.queue)
        more = _job_attributes(job.jid, job.display_class)
        if job.retry_count is not None:
            more["messaging.sidekiq.retry_count"] = job.retry_count
        span = tracer.start_span(
            f"process {job.queue}",
            pushed,
            SpanKind.CONSUMER,
            attributes={**attributes, **more},
            links=links,
        )
        token = context.attach(trace.set_span_in_context(span, pushed))
        in_worker = _in_worker.set(True)
        started = time.perf_counter()
        try:
            yield
        except (Interrupted, Shutdown, CancelledError):
            raise
        except BaseException as error:
            name = type(error).__qualname__
            attributes["error.type"] = name
            span.set_attribute("error.type", name)
            if not isinstance(error, TryAgain):  # which is expected, and no reason for an alarm
                span.set_status(StatusCode.ERROR, name)
            with suppress(Exception):  # the text of an error is code of the application
                span.record_exception(error)
            raise
        finally:
            duration.record(time.perf_counter() - started, attributes)
            _in_worker.reset(in_worker)
            context.detach(token)
            span.end()

    return around


def extract(job: Job, propagator: TextMapPropagator | None = None) -> Context:
    """Return the context of the push that a payload carries; an empty one if it carries none.

    [X-ADDON-9]

    The first valid one of these places counts: the headers that ActiveJob's instrumentation wrote
    into the arguments, the fields of the payload, `newrelic`, Sentry's `trace_propagation_headers`,
    Datadog's `x-datadog-trace-id`.

    Args:
        job: The job.
        propagator: Reads the context; by default the global one.
    """
    reader = propagator or propagate.get_global_textmap()
    found = Context()
    for carrier in _carriers(job.fields):
        found = reader.extract(carrier, context=Context())
        if trace.get_current_span(found).get_span_context().is_valid:
            return found
    for read in (_of_sentry, _of_datadog):
        span_context = read(job.fields)
        if span_context is not None:
            # Baggage is separate from the trace, so the payload's own counts.
            return trace.set_span_in_context(NonRecordingSpan(span_context), _baggage(found))
    return found


def _baggage(source: Context) -> Context:
    """Return a context that has only the baggage of another."""
    carried = Context()
    for name, value in baggage.get_all(source).items():
        carried = baggage.set_baggage(name, value, carried)
    return carried


def _carriers(fields: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the places with headers, the payload's own fields last of those of OpenTelemetry."""
    args = fields.get("args")
    if isinstance(args, list) and args and isinstance(args[0], Mapping):
        yield _texts(args[0].get("__otel_headers"))
    yield _texts(fields.get("__otel_headers"))
    newrelic = fields.get("newrelic")
    if isinstance(newrelic, Mapping) and "traceparent" not in fields:
        yield _texts(newrelic)
    yield _texts(fields)


def _texts(headers: object) -> dict[str, str]:
    """Return the texts of a mapping, or of a list of pairs; {} for anything else."""
    if isinstance(headers, list):
        pairs = [pair for pair in headers if isinstance(pair, list) and len(pair) == 2]
    elif isinstance(headers, Mapping):
        pairs = [[name, value] for name, value in headers.items()]
    else:
        pairs = []
    return {
        name: value for name, value in pairs if isinstance(name, str) and isinstance(value, str)
    }


def _of_sentry(fields: Mapping[str, Any]) -> SpanContext | None:
    """Return the context of `<trace>-<span>`, `<trace>-<span>-` or `<trace>-<span>-<0 or 1>`."""
    headers = _texts(fields.get("trace_propagation_headers"))
    old = _texts(fields).get("sentry_trace", "")  # of Sentry 5.3 for Ruby
    match = _SENTRY.fullmatch(headers.get("sentry-trace", old))
    if match is None:
        return None
    trace_id, span_id, sampled = match.groups()
    # Without a flag the decision is left to the reader.
    return _span_context(int(trace_id, 16), int(span_id, 16), sampled=sampled != "0")


def _of_datadog(fields: Mapping[str, Any]) -> SpanContext | None:
    """Return the context of decimal ids; the upper half of the trace id is in the tags."""
    texts = _texts(fields)
    low, parent = texts.get("x-datadog-trace-id", ""), texts.get("x-datadog-parent-id", "")
    if not all(re.fullmatch("[0-9]{1,20}", number) for number in (low, parent)):
        return None
    tags = re.search(r"(?:^|,)_dd\.p\.tid=([0-9a-f]{16})(?:,|$)", texts.get("x-datadog-tags", ""))
    high = int(tags[1], 16) if tags else 0
    priority = texts.get("x-datadog-sampling-priority", "1")
    return _span_context(high << 64 | int(low), int(parent), sampled=priority in ("1", "2"))


def _span_context(trace_id: int, span_id: int, *, sampled: bool) -> SpanContext | None:
    flags = TraceFlags(TraceFlags.SAMPLED if sampled else TraceFlags.DEFAULT)
    made = SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)
    return made if made.is_valid else None


def _carry_into_child(propagator: TextMapPropagator | None) -> Around:
    """Return a wrapper that gives the context of the push to the process of an isolated job."""

    @contextmanager
    def around(job: Job) -> Iterator[None]:
        if _in_worker.get():  # not in such a process: the execution has its span
            yield
            return
        token = context.attach(extract(job, propagator))
        try:
            yield
        finally:
            context.detach(token)

    return around


def _attributes(name: str, kind: str, queue: str) -> dict[str, AttributeValue]:
    """Return attributes with few values, for spans and metrics."""
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }


def _job_attributes(jid: object, job_class: object) -> dict[str, AttributeValue]:
    attributes: dict[str, AttributeValue] = {"messaging.sidekiq.job_class": str(job_class)}
    if jid is not None:
        attributes["messaging.message.id"] = str(jid)
    return attributes
