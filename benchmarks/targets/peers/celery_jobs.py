"""celery: a pool of processes, as it is by default; no results kept."""

# mypy: ignore-errors
# It runs in an environment with that queue, in which mypy does not run.

from __future__ import annotations

import os

import marks
from celery import Celery, chain, chord

app = Celery("celery_jobs", broker=marks.URL)
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True)
TASKS = {
    "Nothing": app.task(marks.nothing, name="nothing"),
    "Waiting": app.task(marks.waiting, name="waiting"),
    "Lone": app.task(marks.lone, name="lone"),
    "Failing": app.task(
        marks.failing,
        name="failing",
        autoretry_for=(ValueError,),
        max_retries=25,
        retry_backoff=60,
    ),
}


def push(kind: str, value: float, delay: float) -> None:
    TASKS[kind].apply_async((value,), countdown=delay or None)


if "BENCH_LIFE" in os.environ:  # the settings against loss that its documentation names
    app.conf.update(
        result_backend=marks.URL,
        task_acks_late=True,
        task_reject_on_worker_lost=True,
        worker_prefetch_multiplier=1,
        broker_transport_options={"visibility_timeout": 10},
    )
work = app.task(marks.work, name="work")
member = app.task(marks.work, name="member", ignore_result=False)  # a chord counts results

rated = app.task(marks.work, name="rated", rate_limit="100/s")  # of each of the two workers


def push_batch(run: str, count: int, size: int, seconds: float) -> None:
    for group in range(count):
        ids = [f"{run}.{group}.{number}" for number in range(size)]
        chord([member.si("batch", one, seconds) for one in ids])(
            work.si("callback", f"{run}.{group}", seconds)
        )


def push_chain(run: str, count: int, size: int, seconds: float) -> None:
    for number in range(count):
        ids = [f"{run}.{number}.{step}" for step in range(size)]
        chain(*[work.si("chain", one, seconds) for one in ids]).apply_async()


def push_rate(run: str, count: int, size: int, seconds: float) -> None:
    for number in range(count):
        rated.delay("rate", f"{run}.{number}", seconds)


TOOLBOX = {"batch": push_batch, "chain": push_chain, "rate": push_rate}
