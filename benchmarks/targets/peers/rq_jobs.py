"""rq: a process forked for each job, as it is by default; no results kept."""

# mypy: ignore-errors
# It runs in an environment with that queue, in which mypy does not run.

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

import marks
from redis import Redis
from rq import Queue, Retry

queue = Queue(connection=Redis.from_url(marks.URL))
FUNCTIONS = {"Nothing": marks.nothing, "Failing": marks.failing, "Lone": marks.lone}


def push(kind: str, value: float, delay: float) -> None:
    retry = Retry(max=25, interval=60) if kind == "Failing" else None
    if delay:
        queue.enqueue_in(timedelta(seconds=delay), FUNCTIONS[kind], value, result_ttl=0)
    else:
        queue.enqueue(FUNCTIONS[kind], value, result_ttl=0, retry=retry)


def push_bulk(kind: str, values: Iterable[int]) -> None:
    queue.enqueue_many(
        [Queue.prepare_data(FUNCTIONS[kind], args=(value,), result_ttl=0) for value in values]
    )
