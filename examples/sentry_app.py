"""An application that reports to Sentry: errors of jobs, and traces that Ruby can continue.

Sentry's package is not a dependency of jobwire. Copy this file, and give SENTRY_DSN:

    pip install jobwire sentry-sdk
    SENTRY_DSN=https://... jobwire worker sentry_app:app

The trace travels in the payload's field `trace_propagation_headers`, where Sentry's SDK for Ruby
writes and reads it. Arguments of jobs are not sent, because they may be private.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import sentry_sdk
from sentry_sdk.integrations.logging import ignore_logger

from jobwire import App, Job

HEADERS = "trace_propagation_headers"

sentry_sdk.init(traces_sample_rate=0.1)  # without SENTRY_DSN nothing is sent
ignore_logger("jobwire.worker")  # it logs the errors that `report` sends

app = App()


def carry_trace(item: dict[str, Any], call_next: Callable[[], Any]) -> Any:
    """Client middleware: write the current trace into the payload, unless it has one."""
    headers = {"sentry-trace": sentry_sdk.get_traceparent(), "baggage": sentry_sdk.get_baggage()}
    item.setdefault(HEADERS, {name: value for name, value in headers.items() if value})
    return call_next()


app.client_middleware.add(carry_trace)


@app.wrap(outermost=True)
@contextmanager
def continue_trace(job: Job) -> Iterator[None]:
    """Run each job in a transaction that belongs to the trace of its push."""
    with sentry_sdk.isolation_scope():
        transaction = sentry_sdk.continue_trace(
            headers_of(job), op="queue.process", name=job.display_class, source="task"
        )
        with sentry_sdk.start_transaction(transaction):
            transaction.set_data("messaging.message.id", job.jid)
            transaction.set_data("messaging.destination.name", job.queue)
            transaction.set_data("messaging.message.retry.count", job.retry_count or 0)
            yield


@app.on_error
def report(job: Job, error: BaseException) -> None:
    """Report an execution that failed; also one of an unknown class, which has no transaction."""
    with sentry_sdk.isolation_scope() as scope:
        sentry_sdk.continue_trace(headers_of(job))
        scope.set_transaction_name(job.display_class, source="task")
        scope.set_tag("queue", job.queue)
        scope.set_context("job", {"jid": job.jid, "attempt": job.attempt})
        sentry_sdk.capture_exception(error)


def headers_of(job: Job) -> dict[str, Any]:
    """Return the headers of the trace; a payload may hold anything in their place."""
    headers = job.get(HEADERS)
    return headers if isinstance(headers, dict) else {}


@app.job(name="Divide", retry=3)
def divide(a: int, b: int) -> None:
    show.enqueue(a / b)


@app.job(name="Show")
def show(result: float) -> None:
    logging.getLogger("shop").info("the result is %g", result)
