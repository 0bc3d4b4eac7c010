"""An application whose only job writes its execution into a ledger, in a Redis of its own."""

from __future__ import annotations

import json
import os
from typing import Any

import redis

import jobwire
from jobwire import App

QUEUE = "ledger"
KEY = "ledger"

app = App(os.environ.get("JOBWIRE_REDIS_URL"))
_ledger: list[redis.Redis] = []


@app.job(name="LedgerJob", queue=QUEUE)
def ledger(*args: Any) -> None:
    """Record this execution: its id and arguments."""
    if not _ledger:
        _ledger.append(redis.Redis.from_url(os.environ["LEDGER_URL"]))
    job = jobwire.current_job()
    assert job is not None
    _ledger[0].rpush(KEY, json.dumps([job.jid, *args]))
