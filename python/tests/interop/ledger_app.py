"""An application whose jobs write their executions into a ledger, in a Redis of its own.

Release 2 has a class that release 1 lacks. `ruby/rails.rb` is the other half, in Ruby.
"""

from __future__ import annotations

import json
import os
import time
from functools import cache
from typing import Any

import redis

from jobwire import App, Job, Unique, current_job
from jobwire.active_job import GlobalID, Symbol

QUEUE = "ledger"
KEY = "ledger"  # ticks: [job id, name, time]
ROWS = "rows"  # begins and ends of other jobs
RELEASE = int(os.environ.get("RELEASE", "2"))
LOCK_S = 3600.0  # so that a lock that is left is seen
RECORD = "gid://shop/Shop::Order/7"

app = App(os.environ.get("JOBWIRE_REDIS_URL"))


@cache
def _ledger() -> Any:
    return redis.Redis.from_url(os.environ["LEDGER_URL"])


@cache
def _announced() -> set[bytes]:
    """Return the classes that this process has announced, which it did before its first fetch."""
    assert app.url
    client: Any = redis.Redis.from_url(app.url)
    [key] = client.keys(f"jobwire:classes:*:{os.getpid()}:*")
    members: set[bytes] = client.smembers(key)
    return members


def _job() -> Job:
    job = current_job()
    assert job is not None
    return job


def _note(what: str) -> None:
    job = _job()
    name = str(job.get("wrapped") or job.class_name)
    row = (what, job.jid, "python", os.getpid(), RELEASE, job.get("error_message"))
    _ledger().rpush(ROWS, json.dumps([*row, name.encode() in _announced()]))


def _work(number: int) -> None:
    """Take a moment, in which the process may be killed; every tenth job takes a longer one."""
    _note("begun")
    time.sleep(0.01 if number % 10 else 0.3)
    _note("ended")


def _tick(*args: Any) -> None:
    _ledger().rpush(KEY, json.dumps([_job().jid, *args]))


app.job(name="LedgerJob", queue=QUEUE)(_tick)
app.active_job("TickJob", queue=QUEUE)(_tick)
for _name in ("PythonJob", "LockedJob", *(["NewPythonJob"] if RELEASE > 1 else [])):
    app.job(name=_name)(_work)
app.job(name="BothJob", queue="both")(_work)


@app.job(name="UniqueJob", queue="both", unique=Unique(LOCK_S, by=["key"]))
def unique(key: str, number: int) -> None:
    """Run alone with its key, in both languages."""
    _work(number)


@app.job(name="RareJob", queue="both")
def rare(number: int) -> None:
    """Fail the first time."""
    if _job().get("retry_count") is None:
        _note("begun")
        raise ValueError(number)
    _work(number)


@rare.retry_in
def _soon(job: Job, error: BaseException, count: int) -> float:
    return 1.0


@app.active_job("WelcomeJob", queue="both")
def welcome(user: GlobalID, number: int, *, locale: str) -> None:
    """Check the values of Rails."""
    assert (user.uri, locale, type(locale)) == (RECORD, "de", Symbol)
    _work(number)
