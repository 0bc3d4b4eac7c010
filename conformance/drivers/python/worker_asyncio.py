"""The worker of jobwire with the standard jobs as coroutines. Its main program is in worker.py."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import redis.asyncio
import worker
from worker import JobwireError

import jobwire

RUN = os.environ["JOBWIRE_RUN"]
generation: Any = int(os.environ["JOBWIRE_GENERATION"])
app = jobwire.App(os.environ["JOBWIRE_REDIS_URL"], generation=generation)
_control: list[redis.asyncio.Redis] = []  # created inside the event loop of the jobs


def control() -> redis.asyncio.Redis:
    """Return the client of the control Redis."""
    if not _control:
        url = os.environ["JOBWIRE_CONTROL_URL"]
        _control.append(redis.asyncio.Redis.from_url(url, socket_timeout=None))
    return _control[0]


async def report(kind: str, **members: Any) -> None:
    """Report an event of the current job to the suite."""
    job = jobwire.current_job()
    event = {"ev": kind, "jid": job and job.jid, **members}
    await control().rpush(f"jw:{RUN}:ev", json.dumps(event))  # type: ignore[misc]


@app.job(name="JobwireEcho")
async def echo(*args: Any) -> None:
    """Accept any arguments."""
    await report("begin", args=args)
    await report("end", ok=True)


@app.job(name="JobwireFail")
async def fail(message: str) -> None:
    """Fail with this message."""
    await report("begin", args=[message])
    await report("end", ok=False)
    raise JobwireError(message)


@app.job(name="JobwireFlaky")
async def flaky(times: int) -> None:
    """Fail `times` times, then succeed."""
    job = jobwire.current_job()
    await report("begin", args=[times])
    count = await control().incr(f"jw:{RUN}:n:{job and job.jid}")
    ok = int(count) > times
    await report("end", ok=ok)
    if not ok:
        raise JobwireError(f"time {count} of {times}")


@app.job(name="JobwireGate")
async def gate(name: str) -> None:
    """Wait until the suite opens a gate."""
    await report("begin", args=[name])
    await control().blpop([f"jw:{RUN}:gate:{name}"], 0)  # type: ignore[misc]
    await report("end", ok=True)


@app.job(name="JobwireSpawn")
async def spawn(job: dict[str, Any]) -> None:
    """Push another job."""
    await report("begin", args=[job])
    queue = job.get("queue", "default")
    await app.aclient.push(job["class"], job["args"], queue=queue)
    await report("end", ok=True)


@app.job(name="JobwireSpoil")
async def spoil(values: list[Any]) -> None:
    """Change the arguments, then fail."""
    await report("begin", args=[values])
    values.clear()
    await report("end", ok=False)
    raise JobwireError("spoilt")


if __name__ == "__main__":
    worker.app = app  # the jobs of this module replace those of worker.py
    sys.exit(worker.main())
