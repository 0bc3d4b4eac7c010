"""Driver of `jobwire conform`: pushes jobs with our client. Fill in `push`; the rest is done.

Standard output is for answers only; logs go to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

VERSION = "0"  # of the implementation
OPERATIONS = ["push"]
REDIS_URL = os.environ.get("JOBWIRE_REDIS_URL", "")
GENERATION = os.environ.get("JOBWIRE_GENERATION", "8")  # 7: times in seconds, 8: milliseconds


class Rejected(Exception):
    """The client refused the job, and nothing was written."""


class Unknown(Exception):
    """The connection failed. The client cannot know whether the job was written."""


def push(job: dict[str, Any], at: Any, delay: Any) -> str | None:
    """Push one job with your client, to REDIS_URL, and return its jid.

    `job` holds `class`, `args` and options under their names in the payload: `queue`, `retry`,
    `tags`. `at` is the time to run it, in epoch seconds; `delay` is seconds from now; both are None
    for a job that is due at once. Some requests hold invalid values, on purpose. Raise Rejected if
    your client refuses the job, and Unknown if it cannot know whether the job was written.
    """
    raise NotImplementedError


def answer(request: dict[str, Any]) -> dict[str, Any]:
    """Return the answer to one request, without its id."""
    if request["op"] == "hello":
        return {"ok": {"driver": 1, "version": VERSION, "ops": OPERATIONS}}
    if request["op"] == "bye":
        return {"ok": {}}
    try:
        if request["op"] == "push":
            jid = push(request["job"], request.get("at"), request.get("in"))
            return {"ok": {"jid": jid}}
    except Rejected as error:
        return {"error": {"kind": "rejected", "message": str(error) or "rejected"}}
    except Unknown as error:
        return {"error": {"kind": "unknown", "message": str(error) or "unknown"}}
    except NotImplementedError:
        sys.stderr.write("driver.py: fill in `push`\n")
    return {"unsupported": True}


def main() -> None:
    """Answer requests until `bye` or the end of standard input."""
    for line in sys.stdin:
        request = json.loads(line)
        sys.stdout.write(json.dumps({"id": request["id"], **answer(request)}) + "\n")
        sys.stdout.flush()
        if request["op"] == "bye":
            break


if __name__ == "__main__":
    main()
