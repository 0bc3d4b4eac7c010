"""celery: a pool of processes, as it is by default; no results kept."""

# mypy: ignore-errors
# It runs in an environment with that queue, in which mypy does not run.

from __future__ import annotations

import marks
from celery import Celery

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
