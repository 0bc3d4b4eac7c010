"""Payloads that real Sidekiq wrote, pushed again byte for byte as Ruby pushes them."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from redis import Redis

from examples.demo.ledger import Sent

__all__ = ["Recorded", "load", "push"]

VERSIONS = ("6.4.1", "7.3.2", "8.1.7")
FIXTURES = Path(__file__).resolve().parents[2] / "fixtures" / "sidekiq"
FAILING = {"FailJob", "FailRetry0Job"}
MAX_RETRIES = 25  # of a job with `"retry":true`
LEAD = 1.0  # seconds until the scheduled jobs become due


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded payload: its place in Redis, its bytes and some of its fields."""

    place: str
    text: bytes
    jid: str
    class_name: str
    args_json: str


def load(classes: Collection[str]) -> dict[str, list[Recorded]]:
    """Return by version the enqueued, scheduled and retried payloads of these classes."""
    by_version = {version: _load(version, classes) for version in VERSIONS}
    # Some were pushed to each version with the same id, chosen by the caller. The demo identifies
    # jobs by their ids, so it leaves them out.
    versions = Counter(jid for jobs in by_version.values() for jid in jobs)
    return {
        version: [job for jid, job in jobs.items() if versions[jid] == 1]
        for version, jobs in by_version.items()
    }


def _load(version: str, classes: Collection[str]) -> dict[str, Recorded]:
    entries = json.loads((FIXTURES / version / "payloads.json").read_bytes())
    found: dict[str, Recorded] = {}
    # A job that was recorded in several places is pushed once, preferably to its queue.
    for place in ("queue:", "schedule", "retry"):
        for entry in entries:
            expect = entry["expect"]
            if (
                entry["place"].startswith(place)
                and expect["outcome"] == "run"
                and expect["class"] in classes
                and expect["jid"]
            ):
                recorded = Recorded(
                    entry["place"],
                    entry["payload"].encode(),
                    expect["jid"],
                    expect["class"],
                    expect["args_json"],
                )
                found.setdefault(recorded.jid, recorded)
    return found


def push(redis: Redis, jobs: Sequence[Recorded]) -> Iterator[Sent]:
    """Push the jobs to the places in which they were recorded."""
    due = time.time() + LEAD
    pipe = redis.pipeline(transaction=False)
    for job in jobs:
        if job.place.startswith("queue:"):
            pipe.sadd("queues", job.place.removeprefix("queue:"))
            pipe.lpush(job.place, job.text)
            yield _sent(job, due=0.0)
        else:
            pipe.zadd(job.place, {job.text: due})
            yield _sent(job, due=due)
    pipe.execute()


def _sent(job: Recorded, *, due: float) -> Sent:
    if job.class_name not in FAILING:
        return Sent(job.jid, args=json.loads(job.args_json), due=due, text=job.text)
    fields = json.loads(job.text)
    limit = MAX_RETRIES if fields["retry"] is True else fields["retry"]
    count = fields.get("retry_count", -1) + 1
    if count >= limit:
        return Sent(job.jid, "dead", text=job.text)
    return Sent(job.jid, "waiting", retries=(count,), text=job.text)
