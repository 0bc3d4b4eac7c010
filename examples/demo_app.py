"""An example application: some jobs of its own, and some that Ruby enqueues.

Run it in the checkout's directory, with a server of its own:

    .venv/bin/jobwire dev examples.demo_app:app

and enqueue a job in another terminal:

    .venv/bin/jobwire enqueue EchoJob 1 '"two"'

The jobs store their results in Redis, under keys that begin with `demo:`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from redis import Redis

from jobwire import App, Job, current_job


def count(job: Job, call_next: Callable[[], Any]) -> Any:
    """Server middleware, which wraps every job: count, by job id, how often a job succeeds."""
    result = call_next()
    results().hincrby("demo:done", str(job.jid), 1)
    return result


app = App(server_middleware=[count])


@app.on_error
def count_failure(job: Job, error: BaseException) -> None:
    """Count, by job id, how often a job fails, also a job of an unknown class."""
    results().hincrby("demo:failed", str(job.jid), 1)


@cache
def results() -> Redis:
    """Return a connection for the results, to the Redis that the jobs came from."""
    return Redis.from_url(app.client.url)


def note(*args: Any) -> None:
    """Store the arguments or the result of the current job, and the time."""
    job = current_job()
    entry = {"jid": job and job.jid, "args": args, "at": time.time()}
    results().rpush("demo:notes", json.dumps(entry))


# --- jobs of our own ----------------------------------------------------------------------------


@app.job
def greet(name: str, times: int = 1) -> None:
    """Greet a person: `greet.enqueue("Ada", times=2)`."""
    note(name, times)


@app.job
def square(number: int) -> None:
    """Square a number; for bulk pushes: `square.enqueue_bulk([n] for n in range(100))`."""
    note(number * number)


@app.job
async def fetch(url: str, seconds: float) -> None:
    """Wait, as `async def` jobs do, concurrently in one event loop."""
    await asyncio.sleep(seconds)
    await asyncio.to_thread(note, url, seconds)  # redis-py would block the loop


@app.job(retry=5)
def flaky(failures: int) -> None:
    """Fail so many times, then succeed: a failed job is retried after ever longer pauses."""
    job = current_job()
    before = 0 if job is None or job.retry_count is None else job.retry_count + 1
    if before < failures:
        raise ConnectionError(f"failure {before + 1} of {failures}")
    note(failures)


@app.job(retry=1)
def doomed(reason: str) -> None:
    """Fail, fail again, and move to the dead set, where an operator can inspect the job."""
    raise ValueError(reason)


# --- jobs that Ruby enqueues, by their Ruby names -----------------------------------------------


@app.job(name="EchoJob")
def echo(*args: Any) -> None:
    """Take any arguments."""
    note(*args)


@app.job(name="FailJob")
def fail(message: str = "boom", *rest: Any) -> None:
    """Always fail."""
    raise RuntimeError(message)


# Options in a payload, here `"retry":0`, override those of the definition.
app.job(name="FailRetry0Job")(fail)


def active_job(job: dict[str, Any]) -> None:
    """Take a job of Rails' Active Job, which wraps all jobs in a class of its own."""
    note(job)


for wrapper in (
    "Sidekiq::ActiveJob::Wrapper",  # Sidekiq 8
    "ActiveJob::QueueAdapters::SidekiqAdapter::JobWrapper",  # earlier versions
):
    app.job(name=wrapper)(active_job)
