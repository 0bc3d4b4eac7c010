"""Driver of `jobwire conform`: pushes jobs with our client. Fill in `push`; the rest is done.

Standard output is for answers only; logs go to standard error.
"""

from __future__ import annotations

import json
import os
import re
import sys
import traceback
from typing import Any

VERSION = "0"  # of the implementation
OPERATIONS = ["push"]
REDIS_URL = os.environ.get("JOBWIRE_REDIS_URL", "")
GENERATION = os.environ.get("JOBWIRE_GENERATION", "8")  # 7: times in seconds, 8: milliseconds


class Rejected(Exception):
    """The client refused the job, and nothing was written."""


class Unknown(Exception):
    """The connection failed. The client cannot know whether the job was written."""


class NotFilledIn(Exception):
    """`push` is still to be written."""


def push(job: dict[str, Any], at: Any, delay: Any) -> str | None:
    """Push one job with your client, to REDIS_URL, and return its jid.

    `job` holds `class`, `args` and options under their names in the payload: `queue`, `retry`,
    `tags`. `at` is the time to run it, in epoch seconds; `delay` is seconds from now; both are None
    for a job that is due at once. Some requests hold invalid values, on purpose. Raise Rejected if
    your client refuses the job, and Unknown if it cannot know whether the job was written. Any
    other exception is answered as unknown.
    """
    raise NotFilledIn


def perform(op: str, line: str) -> dict[str, Any]:
    """Carry out one request; return the answer without its id."""
    if op == "hello":
        return {"ok": {"driver": 1, "version": VERSION, "ops": OPERATIONS}}
    if op == "bye":
        return {"ok": {}}
    if op == "push":
        request = json.loads(line)
        return {"ok": {"jid": push(request["job"], request.get("at"), request.get("in"))}}
    return {"unsupported": True}


def answer(op: str, line: str) -> dict[str, Any]:
    """Return the answer to one request, without its id. No exception may end the driver."""
    try:
        return perform(op, line)
    except NotFilledIn:
        sys.stderr.write("driver.py: fill in `push`\n")
        return {"unsupported": True}
    except Rejected as error:
        return failure("rejected", error)
    except Unknown as error:
        return failure("unknown", error)
    except Exception as error:  # noqa: BLE001  any error of the client is an answer
        traceback.print_exc()
        return failure("unknown", error)


def failure(kind: str, error: Exception) -> dict[str, Any]:
    """Return the answer for an error."""
    return {"error": {"kind": kind, "message": f"{type(error).__name__}: {error}"}}


def main() -> None:
    """Answer requests until `bye` or the end of standard input."""
    for line in sys.stdin:
        # Every request begins with id and op, without spaces: {"id":1,"op":"push",...
        begin = re.match(r'\{"id":(\d+),"op":"(\w+)"', line)
        if begin is None:
            sys.exit(f"driver.py: not a request: {line}")
        text = json.dumps({"id": int(begin[1]), **answer(begin[2], line)})
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        if begin[2] == "bye":
            break


if __name__ == "__main__":
    main()
