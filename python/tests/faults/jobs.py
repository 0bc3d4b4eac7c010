"""Jobs that record their runs in a Redis that is never disturbed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import redis

from jobwire import App, Cursor, Job, Limit, Snooze, current_job
from jobwire.iterables import over_sequence

STARTED = "started"  # hash: jid -> runs begun
ENDED = "ended"  # hash: jid -> runs that came to their end, including failed ones
FINISHED = "finished"  # hash: jid -> runs that succeeded
ITEMS = "items"  # hash: <jid>:<item> -> times that Walk did it
RELEASE = "release"  # as soon as this key exists, Hold ends and Walk continues
STOPPING = "stopping"  # this key exists as soon as a worker starts no more jobs

LASTING = ("Endless", "Hold", "Patient", "Walk")  # the jobs that wait for an event
DYING = (None, "Doomed", "Sorry")  # the jobs that end in the dead set; None: not a job
OTHER_ENDS = {"Endless": "cancelled", "Late": "expired"}  # outcomes of jobs that never succeed
ROGUES = ("Exit", "StopLoop", "CancelOthers")  # the jobs that disturb the event loop

STEPS = range(12)  # the items of Walk
HALFWAY = 6  # at this item Walk waits for RELEASE

app = App()
_record: Any = None


def record_to(url: str) -> None:
    """Set the Redis in which jobs record their runs."""
    global _record
    _record = redis.Redis.from_url(url)


@app.on("shutdown")
def _stopping() -> None:
    _record.set(STOPPING, 1)


def _wait_for_release() -> None:
    while not _record.exists(RELEASE):
        time.sleep(0.01)


def _say(key: str) -> int:
    """Count an event of the current job; return how many there were."""
    job = current_job()
    assert job is not None
    return int(_record.hincrby(key, job.jid, 1))


def _finish() -> None:
    _say(FINISHED)
    _say(ENDED)


@app.periodic("0 0 1 1 *", name="loaded")  # for workers of the runs with periodic jobs
@app.job(name="Quick")
def quick() -> None:
    _say(STARTED)
    _finish()


@app.job(name="Async")
async def asynchronous() -> None:
    quick()


@app.job(name="Flaky", retry=3)
def flaky() -> None:
    """Fail at first, succeed when retried."""
    job = current_job()
    assert job is not None
    if job.get("retry_count") is not None:
        quick()
        return
    _say(STARTED)
    _say(ENDED)
    raise ValueError("the first run fails")


@app.job(name="Doomed", retry=0)
def doomed() -> None:
    """Fail, and be dead at once."""
    _say(STARTED)
    _say(ENDED)
    raise ValueError("every run fails")


@app.job(name="Kept", keep_result=600)
def kept() -> int:
    app.emit("half")
    quick()
    return 5


@app.job(name="Sorry", keep_result=600, retry=0)
def sorry() -> None:
    """Fail, be dead at once, and keep the failure."""
    doomed()


@app.job(name="Limited", limit=Limit("slots", at_once=9))
def limited() -> None:
    """Take a slot, of which there are enough for those that crashes leave behind."""
    quick()


@app.job(name="Rated", limit=Limit("starts", rate=20, burst=1))
def rated() -> None:
    """Wait for its time, all but the first."""
    quick()


@app.job(name="Windowed", limit=Limit("calls", window=1, per=0.05))
def windowed() -> None:
    """Wait until a window has room, all but the first."""
    quick()


@app.job(name="RubyLocked")
def ruby_locked() -> None:
    """Run with a lock of sidekiq-unique-jobs, which is taken and released."""
    quick()


@app.job(name="Nap")
def nap() -> None:
    """Put itself off at first, succeed later."""
    job = current_job()
    assert job is not None
    if job.get("jw_snoozes"):
        quick()
        return
    _say(STARTED)
    _say(ENDED)
    raise Snooze(0.05)


@app.job(name="Late", keep_result=600)
def late() -> None:
    """Never run, because it always comes too late."""
    raise AssertionError("a late job ran")


@app.on_expired
def _expired(job: Job) -> None:
    """Tell of a job dropped twice. It may be stored before this, so its result tells its end."""
    for key in (STARTED, ENDED):
        _record.hincrby(key, job.jid, 1)


@app.job(name="Endless", keep_result=600)
async def endless() -> None:
    """Run until it is cancelled. Its result tells the end, also of one that never starts."""
    _say(STARTED)
    await asyncio.sleep(600)


@app.job(name="Hold")
def hold() -> None:
    """Run until the test releases the job."""
    _say(STARTED)
    _wait_for_release()
    _finish()


@app.iterable(name="Walk")
def walk(cursor: Cursor) -> Iterator[object]:
    """Do some items, one after the other."""
    _say(STARTED)
    job = current_job()
    assert job is not None
    for item, at in over_sequence(cursor, STEPS):
        yield at
        if item == HALFWAY:
            _wait_for_release()
        _record.hincrby(ITEMS, f"{job.jid}:{item}", 1)
    _finish()


async def _disturb(deed: Callable[[], object]) -> None:
    """Disturb the event loop in the first run of the current job; end normally in the others."""
    if _say(STARTED) == 1:
        kept = deed()
        await asyncio.sleep(0.05)
        del kept
    _finish()


async def _exit() -> None:
    raise SystemExit(1)


def _cancel_others() -> None:
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


@app.job(name="Exit")
async def leave() -> None:
    await _disturb(lambda: asyncio.create_task(_exit()))


@app.job(name="StopLoop")
async def stop_loop() -> None:
    await _disturb(asyncio.get_running_loop().stop)


@app.job(name="CancelOthers")
async def cancel_others() -> None:
    await _disturb(_cancel_others)


@app.job(name="Patient")
async def patient() -> None:
    """Wait until the test releases the job, without a thread."""
    _say(STARTED)
    while not _record.exists(RELEASE):
        await asyncio.sleep(0.01)
    _finish()
