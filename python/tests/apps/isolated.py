"""Jobs that run in processes of their own and harm them. They leave traces in files."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from decimal import Decimal
from pathlib import Path
from uuid import UUID

from jobwire import App, Job, Shutdown, TryAgain, current_job, report_progress

app = App()


class BrokenError(Exception):
    pass


class RateLimitedError(TryAgain):
    pass


def record(path: str, text: object) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@app.wrap
@contextmanager
def around(job: Job) -> Iterator[None]:
    os.environ["AROUND"] = str(job.jid)
    try:
        yield
    finally:
        del os.environ["AROUND"]


@app.job(name="Emit", isolated=True, timeout=3)
def emit(count: int, seconds: float) -> None:
    for number in range(count):
        app.emit(number)
    time.sleep(seconds)


@app.job(name="Who", isolated=True)
def who(path: str) -> None:
    job = current_job()
    assert job is not None
    record(path, f"{os.getpid()} {job.jid} {job.queue} {os.environ['AROUND']} {app.url}")


@app.job(name="Typed", isolated=True)
def typed(path: str, order: UUID, price: Decimal) -> None:
    record(path, repr((order, price)))


@app.job(name="AsyncTyped", isolated=True)
async def async_typed(path: str, order: UUID, price: Decimal) -> None:
    record(path, repr((order, price)))


@app.job(name="AsyncWho", isolated=True)
async def async_who(path: str) -> None:
    await asyncio.sleep(0)
    job = current_job()
    assert job is not None
    record(path, f"{os.getpid()} {job.jid} {job.queue} {os.environ['AROUND']} {app.url}")


tenant: ContextVar[str] = ContextVar("tenant", default="none")


@app.job(name="Remember", isolated=True)
def remember(path: str) -> None:
    record(path, f"{os.getpid()} {tenant.get()}")
    tenant.set("acme")


@app.job(name="Later", isolated=True)
def later(text: str) -> None:
    raise RateLimitedError(text)


@app.job(name="Same", isolated=True)
def same(path: str, *values: object) -> None:
    record(path, repr(values))


@app.job(name="Raise", isolated=True)
def fail(text: str) -> None:
    raise BrokenError(text)


@app.job(name="Leave", isolated=True)
def leave(status: int) -> None:
    sys.exit(status)


@app.job(name="Vanish", isolated=True)
def vanish(status: int) -> None:
    os._exit(status)


@app.job(name="Crash", isolated=True)
def crash() -> None:
    ctypes.string_at(0)


@app.job(name="ForkAndCrash", isolated=True)
def fork_and_crash(path: str) -> None:
    """Leave a process behind that keeps all files of this process open."""
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    record(path, pid)
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(name="Hang", isolated=True)
def hang(path: str) -> None:
    """Block where no exception can be raised, with a program that does the same."""
    program = subprocess.Popen(["sleep", "60"])
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    record(path, f"{os.getpid()} {program.pid}")
    time.sleep(60)


@app.job(name="Wait", isolated=True)
def wait(path: str) -> None:
    record(path, os.getpid())
    try:
        time.sleep(60)
    except Shutdown:
        record(path, "interrupted")
        raise


@app.job(name="AsyncWait", isolated=True)
async def async_wait(path: str) -> None:
    record(path, os.getpid())
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        record(path, "interrupted")
        raise


@app.job(name="Slow", isolated=True, timeout=0.5)
def slow() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    time.sleep(60)


@app.job(name="Print", isolated=True)
def print_it(text: str) -> None:
    print("out", text)  # noqa: T201
    print("err", text, file=sys.stderr)  # noqa: T201
    subprocess.run(["printf", r"\033[2Jprogram \377\n\nno end of line"], check=True)


@app.job(name="PrintAndDie", isolated=True)
def print_and_die(text: str) -> None:
    print(text)  # noqa: T201
    os.kill(os.getpid(), signal.SIGKILL)


@app.job(name="Say", isolated=True)
def say(text: str) -> None:
    logging.getLogger("shop").warning("%s", text)


@app.job(name="Channel", isolated=True)
def channel(data: str) -> None:
    """Write bytes to the channel to the worker, or close it."""
    number = int(sys.argv[1])
    if data:
        os.write(number, bytes.fromhex(data))
    else:
        os.close(number)


@app.job(name="Reports", isolated=True)
def reports(path: str) -> None:
    """Report often, wait for a file, and report once more."""
    for number in range(100_000):
        report_progress(number, 100_000)
    while not os.path.exists(path):
        time.sleep(0.01)
    report_progress(100_000, 100_000)
