"""Errors and traces for Sentry, across producers and workers in Ruby and Python.

    from jobwire.sentry import instrument

    sentry_sdk.init(traces_sample_rate=0.1)
    instrument(app)

The trace travels in the payload's field `trace_propagation_headers`, where Sentry's SDK for Ruby
writes and reads it. Arguments of jobs are not sent, because they may be private.

It needs the extra `jobwire[sentry]`. The application calls `sentry_sdk.init` itself; without a DSN
nothing is sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sentry_sdk
from sentry_sdk.integrations.logging import ignore_logger

from jobwire.application.app import App
from jobwire.protocol.normalize import JobFields
from jobwire.protocol.payload import Job

__all__ = ["instrument"]

HEADERS = "trace_propagation_headers"  # the payload field


def instrument(app: App) -> None:
    """Report the failures of an application's jobs, and trace its pushes and executions.

    Call it once, after the application's own middleware was added: its transactions surround that.

    Args:
        app: The application.
    """
    ignore_logger("jobwire.worker")  # it logs the errors that `_report` sends
    app.client_middleware.prepend(_carry_trace)
    app.outermost.insert(0, _continue_trace)
    app.on_error(_report)


def _carry_trace(item: JobFields, call_next: Callable[[], Any]) -> Any:
    """Client middleware: write the current trace into the payload, unless it has one."""
    headers = {"sentry-trace": sentry_sdk.get_traceparent(), "baggage": sentry_sdk.get_baggage()}
    item.setdefault(HEADERS, {name: value for name, value in headers.items() if value})
    return call_next()


@contextmanager
def _continue_trace(job: Job) -> Iterator[None]:
    """Run each job in a transaction that belongs to the trace of its push."""
    with sentry_sdk.isolation_scope():
        transaction = sentry_sdk.continue_trace(
            _headers_of(job), op="queue.process", name=job.display_class, source="task"
        )
        with sentry_sdk.start_transaction(transaction):
            transaction.set_data("messaging.message.id", job.jid)
            transaction.set_data("messaging.destination.name", job.queue)
            transaction.set_data("messaging.message.retry.count", job.retry_count or 0)
            yield


def _report(job: Job, error: BaseException) -> None:
    """Report an execution that failed; also one of an unknown class, which has no transaction."""
    with sentry_sdk.isolation_scope() as scope:
        sentry_sdk.continue_trace(_headers_of(job))
        scope.set_transaction_name(job.display_class, source="task")
        scope.set_tag("queue", job.queue)
        scope.set_context("job", {"jid": job.jid, "attempt": job.attempt})
        sentry_sdk.capture_exception(error)


def _headers_of(job: Job) -> dict[str, Any]:
    """Return the headers of the trace; a payload may hold anything in their place."""
    headers = job.get(HEADERS)
    if isinstance(headers, dict):
        return headers
    old = job.get("sentry_trace")  # of Sentry 5.3 for Ruby
    return {"sentry-trace": old} if isinstance(old, str) else {}
