"""python-sidekiq-client as a driver of the conformance suite."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from typing import Any

import redis
from sidekiq_client import SidekiqClient


def push(client: SidekiqClient, request: dict[str, Any]) -> str:
    """Push the job of a request; return its id."""
    job = dict(request["job"])
    # A caller in Python must give these three arguments, with any values.
    args = (job.pop("queue", "default"), job.pop("class", None), job.pop("args", None))
    if "at" in request:
        return client.perform_at(request["at"], *args, **job)
    if "in" in request:
        return client.perform_in(request["in"], *args, **job)
    return client.perform_async(*args, **job)


def answer(client: SidekiqClient, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one request."""
    match request["op"]:
        case "hello":
            release = version("python-sidekiq-client")
            return {"ok": {"driver": 1, "version": release, "ops": ["push"]}}
        case "push":
            return {"ok": {"jid": push(client, request)}}
        case "bye":
            return {"ok": {}}
    return {"unsupported": True}


def main() -> None:
    """Answer requests until `bye` or the end of standard input."""
    client = SidekiqClient(os.environ["JOBWIRE_REDIS_URL"])
    for line in sys.stdin:
        request = json.loads(line)
        try:
            result = answer(client, request)
        except (TypeError, ValueError, redis.DataError) as error:
            result = {"error": {"kind": "rejected", "message": str(error)}}
        except redis.RedisError as error:
            result = {"error": {"kind": "unknown", "message": str(error)}}
        sys.stdout.write(json.dumps({"id": request["id"], **result}) + "\n")
        sys.stdout.flush()
        if request["op"] == "bye":
            break


if __name__ == "__main__":
    main()
