"""The state that checks see, while processes work and after `settle`. [REL-3] [SCHED-1]"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.servers import Server, valkey_program
from jobwire_conformance import config, data
from jobwire_conformance.cases.case import Case
from jobwire_conformance.cases.match import Scope
from jobwire_conformance.run import run, verdicts
from jobwire_conformance.run.state import State
from jobwire_conformance.sandbox.sandbox import Sandbox
from jobwire_conformance.wire.link import Link
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


STUCK_WORKER = LATE_WORKER.replace("sleep(0.5)", "sleep(60)")


@pytest.mark.process
def test_a_machine_that_is_too_busy_gives_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[RETRY-4]"""
    settings = config.load(adapter(tmp_path, worker=STUCK_WORKER, timeout=20))
    steps: list[dict[str, Any]] = [
        {"seed": [{"lpush": "queue:default", "raw": "{}"}]},
        {"start": "w1", "queues": ["default"]},
        {"settle": True, "within": 2},
        {"check": "FETCH-1", "key": "never", "exists": True},
    ]
    case = Case("lag", "", ("worker/core",), None, data.GENERATIONS, (), (), steps, None)
    for load, status in ((0.0, "fail"), (1e6, "blocked")):
        monkeypatch.setattr("os.getloadavg", lambda load=load: (load, load, load))
        outcome = run.run(settings, [case], (), watcher=Quiet(), program=valkey_program())
        (verdict,) = (verdict for verdict in outcome.verdicts if verdict.case == "lag")
        assert verdict.status == status
        assert ("no verdict" in str(verdict.finding.blocked_by)) is (status == "blocked")
        assert verdicts.status([verdict], stale_or_unknown=False) == (1 if status == "fail" else 4)


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


JOB = '{"class":"JobwireEcho","args":[],"jid":"a1"}'


def test_a_job_on_its_way_is_in_one_place(server: Server) -> None:
    """Else a check would see none or two of it at times."""
    client: Any = server.client()
    client.lpush("queue:a", JOB)
    ended = threading.Event()

    def move() -> None:
        while not ended.is_set():
            client.lmove("queue:a", "queue:b", "RIGHT", "LEFT")
            client.lmove("queue:b", "queue:a", "RIGHT", "LEFT")

    link = Link(server.port)
    # Only these parts of a sandbox are needed to read Redis.
    sandbox = SimpleNamespace(link=link, config=SimpleNamespace(prefix=""), is_cluster=False)
    state = State(cast(Sandbox, sandbox), Scope(8, 0.0))
    mover = threading.Thread(target=move)
    mover.start()
    try:
        found = [len(state._places("a1")) for _ in range(500)]
    finally:
        ended.set()
        mover.join()
        link.close()
    assert found == [1] * 500
