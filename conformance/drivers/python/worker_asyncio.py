"""The worker of jobwire with the standard jobs as coroutines. Its main program is in worker.py."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Any

import hiredis
import worker
from worker import CONTROL, JobwireError

import jobwire

RUN = os.environ["JOBWIRE_RUN"]
generation: Any = int(os.environ["JOBWIRE_GENERATION"])
app = jobwire.App(os.environ["JOBWIRE_REDIS_URL"], generation=generation)


async def control(*words: str) -> Any:
    """Return the reply of the control Redis to a command, over a connection of its own."""
    reader, writer = await asyncio.open_connection(CONTROL.hostname, CONTROL.port)
    try:
        for each in (("SELECT", CONTROL.path[1:]), words):
            writer.write(hiredis.pack_command(each))
        replies: list[Any] = []
        parser = hiredis.Reader()
        while len(replies) < 2:
            parser.feed(await reader.readuntil())
            while (reply := parser.gets()) is not False:
                replies.append(reply)
        return replies[1]
    finally:
        writer.close()


async def report(kind: str, **members: Any) -> None:
    """Report an event of the current job to the suite."""
    job = jobwire.current_job()
    event = {"ev": kind, "jid": job and job.jid, **members}
    await control("RPUSH", f"jw:{RUN}:ev", json.dumps(event))


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
    count = await control("INCR", f"jw:{RUN}:n:{job and job.jid}")
    ok = int(count) > times
    await report("end", ok=ok)
    if not ok:
        raise JobwireError(f"time {count} of {times}")


@app.job(name="JobwireGate")
async def gate(name: str) -> None:
    """Wait until the suite opens a gate."""
    await report("begin", args=[name])
    await control("BLPOP", f"jw:{RUN}:gate:{name}", "0")
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
