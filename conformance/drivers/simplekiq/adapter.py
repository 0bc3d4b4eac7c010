"""simplekiq as driver or as worker of the conformance suite, which it must fail."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from typing import Any
from urllib.parse import urlsplit

import redis
from simplekiq import EventBuilder, KiqQueue, Worker


def queue_named(name: str) -> KiqQueue:
    """Return a queue object of simplekiq."""
    address = urlsplit(os.environ["JOBWIRE_REDIS_URL"])
    return KiqQueue(f"{address.hostname}:{address.port}", name, True)


def push(request: dict[str, Any]) -> dict[str, Any]:
    """Push the job of a request, if simplekiq supports its options."""
    job = request["job"]
    if "at" in request or "in" in request or set(job) - {"class", "args", "queue", "retry"}:
        return {"unsupported": True}
    retry = {"retry": job["retry"]} if "retry" in job else {}
    try:
        queue = queue_named(job.get("queue", "default"))
        event = EventBuilder(queue).create(
            job.get("class"), job.get("queue", "default"), job.get("args"), **retry
        )
        queue.enqueue(event)
    except redis.RedisError as error:
        return {"error": {"kind": "unknown", "message": str(error)}}
    except Exception as error:  # noqa: BLE001  simplekiq raises Exception for a wrong name
        return {"error": {"kind": "rejected", "message": str(error)}}
    payload = json.loads(event) if isinstance(event, str | bytes) else event
    return {"ok": {"jid": payload["jid"]}}


def drive() -> None:
    """Answer requests until `bye` or the end of standard input."""
    for line in sys.stdin:
        request = json.loads(line)
        match request["op"]:
            case "hello":
                release = version("simplekiq")
                result: dict[str, Any] = {"ok": {"driver": 1, "version": release, "ops": ["push"]}}
            case "push":
                result = push(request)
            case "bye":
                result = {"ok": {}}
            case _:
                result = {"unsupported": True}
        sys.stdout.write(json.dumps({"id": request["id"], **result}) + "\n")
        sys.stdout.flush()
        if request["op"] == "bye":
            break


class Standard(Worker):  # type: ignore[misc]
    """The standard jobs, as far as simplekiq passes their data."""

    def on_event(self, event_type: str, value: Any) -> None:
        """Run one job."""
        report("begin", value)
        fails = event_type in ("JobwireFail", "JobwireFlaky")
        report("end", value, ok=not fails)
        if fails:
            raise RuntimeError(str(value))


def report(kind: str, args: Any, **members: Any) -> None:
    """Report an event of a job to the suite. A job of simplekiq does not know its id."""
    control = redis.Redis.from_url(os.environ["JOBWIRE_CONTROL_URL"])
    event = {"ev": kind, "jid": None, "args": args, **members}
    control.rpush(f"jw:{os.environ['JOBWIRE_RUN']}:ev", json.dumps(event))


def work() -> None:
    """Serve the first queue, because a worker of simplekiq serves only one."""
    name = os.environ["JOBWIRE_QUEUES"].split(",")[0].partition(":")[0]
    worker = Standard(queue_named(name), queue_named("failed"))
    while True:
        worker.process(True)


if __name__ == "__main__":
    drive() if sys.argv[1:] == ["driver"] else work()
