"""Checks right after `settle`: a later outcome counts, a value that only time changes does not.

[REL-3] [SCHED-1]
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.servers import valkey_program
from jobwire_conformance import config, data
from jobwire_conformance.cases.case import Case
from jobwire_conformance.run import run
from tests.conformance.suite import Quiet, adapter

# Fetches, and half a second after its first empty fetch writes the key `late`.
LATE_WORKER = """
import os, signal, socket, time

signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
host, port = os.environ["JOBWIRE_REDIS_URL"].split("/")[2].split(":")
redis = socket.create_connection((host, int(port)))
redis.sendall(b"RPOP queue:default\\r\\n")
redis.recv(65536)
time.sleep(0.5)
redis.sendall(b"SET late 1\\r\\n")
redis.recv(65536)
while True:
    redis.sendall(b"BRPOP queue:default 1\\r\\n")
    redis.recv(65536)
"""
SET = {"set": "brief", "value": "x", "ttl": 61}
ADD = {"zadd": "schedule", "score": "now+61.5", "raw": "x"}


@pytest.mark.process
@pytest.mark.parametrize(
    ("seed", "check", "passes"),
    [
        ({}, {"key": "late", "exists": True}, True),
        ({}, {"key": "never", "exists": True}, False),
        ({}, {"key": "late", "exists": False}, True),
        (SET, {"key": "brief", "ttl": {"$": "range", "min": 30, "max": 60}}, False),
        (SET, {"key": "brief", "ttl": {"$": "range", "min": 30, "max": 60}, "within": 5}, True),
        (SET, {"key": "brief", "ttl": {"$": "range", "min": 30, "max": 61}}, True),
        (ADD, {"zset": "schedule", "score": {"$": "time", "within": 1, "of": "now+60"}}, False),
        (ADD, {"zset": "schedule", "score": {"$": "time", "within": 1, "of": "now+61"}}, True),
    ],
)
def test_a_check_waits_for_a_change_and_not_for_time(
    tmp_path: Path, seed: Mapping[str, Any], check: Mapping[str, Any], passes: bool
) -> None:
    settings = config.load(adapter(tmp_path, worker=LATE_WORKER, timeout=20))
    steps: list[dict[str, Any]] = [
        {"start": "w1", "queues": ["default"]},
        *([{"seed": [seed]}] if seed else []),
        {"check": "FETCH-1", **check},
    ]
    case = Case("lag", "", ("worker/core",), None, data.GENERATIONS, (), (), steps, None)
    outcome = run.run(settings, [case], (), watcher=Quiet(), program=valkey_program())
    assert outcome.errors == []
    (verdict,) = (verdict for verdict in outcome.verdicts if verdict.case == "lag")
    assert (verdict.status == "pass") is passes, verdict.finding.message
