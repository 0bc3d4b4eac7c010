"""simplekiq under the conformance suite, as driver or as worker: the one that has to fail."""

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
    """Return a queue of simplekiq's."""
    where = urlsplit(os.environ["JOBWIRE_REDIS_URL"])
    return KiqQueue(f"{where.hostname}:{where.port}", name, True)


def push(request: dict[str, Any]) -> dict[str, Any]:
    """Push what `request` says, as far as it can be said to simplekiq."""
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
    except Exception as error:  # noqa: BLE001  it raises just that for a name it does not like
        return {"error": {"kind": "rejected", "message": str(error)}}
    found = json.loads(event) if isinstance(event, str | bytes) else event
    return {"ok": {"jid": found["jid"]}}


def drive() -> None:
    """Answer requests until `bye` or the end."""
    for line in sys.stdin:
        request = json.loads(line)
        match request["op"]:
            case "hello":
                release = version("simplekiq")
                said: dict[str, Any] = {"ok": {"driver": 1, "version": release, "ops": ["push"]}}
            case "push":
                said = push(request)
            case "bye":
                said = {"ok": {}}
            case _:
                said = {"unsupported": True}
        sys.stdout.write(json.dumps({"id": request["id"], **said}) + "\n")
        sys.stdout.flush()
        if request["op"] == "bye":
            break


class Standard(Worker):  # type: ignore[misc]
    """The standard jobs, as far as a job here is told anything."""

    def on_event(self, event_type: str, value: Any) -> None:
        """Run one."""
        report("begin", value)
        fails = event_type in ("JobwireFail", "JobwireFlaky")
        report("end", value, ok=not fails)
        if fails:
            raise RuntimeError(str(value))


def report(what: str, args: Any, **more: Any) -> None:
    """Tell the suite. The id of a job is not known to it."""
    control = redis.Redis.from_url(os.environ["JOBWIRE_CONTROL_URL"])
    event = {"ev": what, "jid": None, "args": args, **more}
    control.rpush(f"jw:{os.environ['JOBWIRE_RUN']}:ev", json.dumps(event))


def work() -> None:
    """Serve the first queue, since there is room for one."""
    name = os.environ["JOBWIRE_QUEUES"].split(",")[0].partition(":")[0]
    worker = Standard(queue_named(name), queue_named("failed"))
    while True:
        worker.process(True)


if __name__ == "__main__":
    drive() if sys.argv[1:] == ["driver"] else work()
