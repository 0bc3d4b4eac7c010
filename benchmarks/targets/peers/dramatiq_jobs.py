"""dramatiq: threads of one process."""

# mypy: ignore-errors
# It runs in an environment with that queue, in which mypy does not run.

from __future__ import annotations

import os

import dramatiq
import marks
from dramatiq.brokers.redis import RedisBroker
from dramatiq.middleware import GroupCallbacks
from dramatiq.rate_limits import ConcurrentRateLimiter, WindowRateLimiter
from dramatiq.rate_limits.backends import RedisBackend

# For the toolbox, jobs of a dead worker are found soon: by default, seldom, after a minute.
SOON = {"heartbeat_timeout": 10_000, "maintenance_chance": 20_000}
broker = RedisBroker(url=marks.URL, **(SOON if "BENCH_LIFE" in os.environ else {}))
counts = RedisBackend(url=marks.URL)
if "BENCH_LIFE" in os.environ:
    broker.add_middleware(GroupCallbacks(counts))
dramatiq.set_broker(broker)
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


five = ConcurrentRateLimiter(counts, "five", limit=5, ttl=60_000)
often = WindowRateLimiter(counts, "often", limit=200, window=1)
work = dramatiq.actor(marks.work, actor_name="work")


@dramatiq.actor(max_retries=None, min_backoff=50, max_backoff=500)
def limited(what: str, ident: str, seconds: float) -> None:
    with five.acquire():  # raises if there are five, and the job is retried
        marks.work(what, ident, seconds)


@dramatiq.actor(max_retries=None, min_backoff=50, max_backoff=500)
def rated(what: str, ident: str, seconds: float) -> None:
    with often.acquire():
        marks.work(what, ident, seconds)


def push_batch(run: str, count: int, size: int, seconds: float) -> None:
    for number in range(count):
        ids = [f"{run}.{number}.{member}" for member in range(size)]
        group = dramatiq.group([work.message("batch", one, seconds) for one in ids])
        group.add_completion_callback(work.message("callback", f"{run}.{number}", seconds))
        group.run()


def push_chain(run: str, count: int, size: int, seconds: float) -> None:
    for number in range(count):
        ids = [f"{run}.{number}.{step}" for step in range(size)]
        steps = [
            work.message_with_options(args=("chain", one, seconds), pipe_ignore=True) for one in ids
        ]
        dramatiq.pipeline(steps).run()


def push_limit(run: str, count: int, size: int, seconds: float) -> None:
    for number in range(count):
        limited.send("limit", f"{run}.{number}", seconds)


def push_rate(run: str, count: int, size: int, seconds: float) -> None:
    for number in range(count):
        rated.send("rate", f"{run}.{number}", seconds)


TOOLBOX = {"batch": push_batch, "chain": push_chain, "limit": push_limit, "rate": push_rate}
