"""dramatiq: threads of one process."""

# mypy: ignore-errors
# It runs in an environment with that queue, in which mypy does not run.

from __future__ import annotations

import dramatiq
import marks
from dramatiq.brokers.redis import RedisBroker

dramatiq.set_broker(RedisBroker(url=marks.URL))
ACTORS = {
    "Nothing": dramatiq.actor(marks.nothing),
    "Failing": dramatiq.actor(max_retries=25, min_backoff=60_000)(marks.failing),
    "Waiting": dramatiq.actor(marks.waiting),
    "Lone": dramatiq.actor(marks.lone),
}


def push(kind: str, value: float, delay: float) -> None:
    if delay:
        ACTORS[kind].send_with_options(args=(value,), delay=int(delay * 1000))
    else:
        ACTORS[kind].send(value)
