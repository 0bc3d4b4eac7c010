"""The client of jobwire as a driver of the conformance suite."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import jobwire
from jobwire.errors import InvalidJob, JobwireError, NoReply

OPTIONS = (
    *("queue", "retry", "backtrace", "dead", "retry_for", "retry_queue", "tags", "log_level"),
    "pool",
)


def push(client: jobwire.Client, request: dict[str, Any]) -> dict[str, Any]:
    """Push what `request` says."""
    job = dict(request["job"])
    name, args, jid = job.pop("class", None), job.pop("args", None), job.pop("jid", None)
    options = {option: job.pop(option) for option in OPTIONS if option in job}
    if "in" in request:
        return {"jid": client.push_in(request["in"], name, args, jid=jid, fields=job, **options)}
    at = {"at": request["at"]} if "at" in request else {}
    return {"jid": client.push(name, args, jid=jid, fields=job, **options, **at)}


def push_bulk(client: jobwire.Client, request: dict[str, Any]) -> dict[str, Any]:
    """Push many."""
    job = dict(request["job"])
    name = job.pop("class", None)
    options = {option: job.pop(option) for option in OPTIONS if option in job}
    times = {what: request[what] for what in ("at", "spread_interval") if what in request}
    return {"jids": client.push_bulk(name, request["args"], fields=job, **options, **times)}


def answer(client: jobwire.Client, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one request."""
    match request["op"]:
        case "hello":
            ops = ["push", "push_bulk"]
            return {"ok": {"driver": 1, "version": jobwire.__version__, "ops": ops}}
        case "push":
            return {"ok": push(client, request)}
        case "push_bulk":
            return {"ok": push_bulk(client, request)}
        case "bye":
            return {"ok": {}}
    return {"unsupported": True}


def main() -> None:
    """Answer requests until `bye` or the end."""
    generation: Any = int(os.environ["JOBWIRE_GENERATION"])
    with jobwire.Client(os.environ["JOBWIRE_REDIS_URL"], generation=generation) as client:
        for line in sys.stdin:
            request = json.loads(line)
            try:
                said = answer(client, request)
            except JobwireError as error:
                # Of a bulk, earlier slices may be there though this one certainly is not.
                written = getattr(error, "written", None)
                maybe = isinstance(error, NoReply) or bool(written)
                kind = "unknown" if maybe and not isinstance(error, InvalidJob) else "rejected"
                said = {"error": {"kind": kind, "message": str(error)}}
                if written:
                    said["error"]["written"] = list(written)
            sys.stdout.write(json.dumps({"id": request["id"], **said}) + "\n")
            sys.stdout.flush()
            if request["op"] == "bye":
                break


if __name__ == "__main__":
    main()
