"""The asyncio client of jobwire as a driver of the conformance suite."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

from driver import OPTIONS, failure

import jobwire
from jobwire.errors import JobwireError


async def push(client: jobwire.AsyncClient, request: dict[str, Any]) -> dict[str, Any]:
    """Push the job of a request; return its id."""
    job = dict(request["job"])
    name, args, jid = job.pop("class", None), job.pop("args", None), job.pop("jid", None)
    options = {option: job.pop(option) for option in OPTIONS if option in job}
    if "in" in request:
        delay = request["in"]
        return {"jid": await client.push_in(delay, name, args, jid=jid, fields=job, **options)}
    at = {"at": request["at"]} if "at" in request else {}
    return {"jid": await client.push(name, args, jid=jid, fields=job, **options, **at)}


async def push_bulk(client: jobwire.AsyncClient, request: dict[str, Any]) -> dict[str, Any]:
    """Push the jobs of a request; return their ids."""
    job = dict(request["job"])
    name = job.pop("class", None)
    options = {option: job.pop(option) for option in OPTIONS if option in job}
    times = {field: request[field] for field in ("at", "spread_interval") if field in request}
    return {"jids": await client.push_bulk(name, request["args"], fields=job, **options, **times)}


async def answer(client: jobwire.AsyncClient, request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one request."""
    match request["op"]:
        case "hello":
            ops = ["push", "push_bulk"]
            return {"ok": {"driver": 1, "version": jobwire.__version__, "ops": ops}}
        case "push":
            return {"ok": await push(client, request)}
        case "push_bulk":
            return {"ok": await push_bulk(client, request)}
        case "bye":
            return {"ok": {}}
    return {"unsupported": True}


async def main() -> None:
    """Answer requests until `bye` or the end of standard input."""
    generation: Any = int(os.environ["JOBWIRE_GENERATION"])
    url = os.environ["JOBWIRE_REDIS_URL"]
    async with jobwire.AsyncClient(url, generation=generation) as client:
        while line := await asyncio.to_thread(sys.stdin.readline):
            request = json.loads(line)
            try:
                result = await answer(client, request)
            except JobwireError as error:
                result = failure(error)
            sys.stdout.write(json.dumps({"id": request["id"], **result}) + "\n")
            sys.stdout.flush()
            if request["op"] == "bye":
                break


if __name__ == "__main__":
    asyncio.run(main())
