"""huey: threads, no results kept."""

# mypy: ignore-errors
# It runs in an environment with that queue, in which mypy does not run.

from __future__ import annotations

import marks
from huey import RedisHuey

huey = RedisHuey("bench", url=marks.URL, results=False)
TASKS = {
    "Nothing": huey.task()(marks.nothing),
    "Failing": huey.task(retries=25, retry_delay=60)(marks.failing),
    "Waiting": huey.task()(marks.waiting),
    "Lone": huey.task()(marks.lone),
}


def push(kind: str, value: float, delay: float) -> None:
    if delay:
        TASKS[kind].schedule((value,), delay=delay)
    else:
        TASKS[kind](value)
