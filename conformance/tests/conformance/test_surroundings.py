"""The surroundings of a run: ignored signals, time zone and midnight decide no check."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from zoneinfo import ZoneInfo

import pytest

from harness.servers import Server, valkey_program
from jobwire_conformance import config, data
from jobwire_conformance.cases import case as cases
from jobwire_conformance.cases.case import Case
from jobwire_conformance.cases.match import Scope
from jobwire_conformance.run import play, run, verdicts
from jobwire_conformance.run.state import State
from jobwire_conformance.sandbox.processes import distant_zone
from jobwire_conformance.sandbox.sandbox import Sandbox
from jobwire_conformance.wire.link import Link
from tests.conformance.suite import REFERENCE, ROOT, Quiet, adapter
from tests.rows import over

# Leaves ignored signals ignored, as a JVM does, and wants the surroundings that the suite promises.
STRICT_WORKER = """
import os, signal, socket, sys, time

for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGTSTP", "SIGTTIN"):
    if signal.getsignal(getattr(signal, name)) == signal.SIG_IGN:
        sys.exit(f"{name} is ignored")
if signal.pthread_sigmask(signal.SIG_BLOCK, ()):
    sys.exit("signals are blocked")
if time.localtime()[:3] == time.gmtime()[:3]:
    sys.exit(f"the local date is that of UTC; TZ is {os.environ.get('TZ')!r}")
if "jobwire-run-" not in os.environ["TMPDIR"]:
    sys.exit("temporary files stay after the run")
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: os._exit(0))
host, port = os.environ["JOBWIRE_REDIS_URL"].split("/")[2].split(":")
redis = socket.create_connection((host, int(port)))
while True:
    redis.sendall(b"BRPOP queue:default 1\\r\\n")
    redis.recv(65536)
"""


@pytest.mark.process
def test_workers_get_signals_that_the_suite_was_told_to_ignore(tmp_path: Path) -> None:
    """`command &` in a script ignores INT and QUIT, and `nohup` HUP. [SIG-1]"""
    adapter(tmp_path, worker=STRICT_WORKER, timeout=20)
    arguments = ("check", "conformance.toml", "worker/signals", "--case", "stop-idle")
    done = subprocess.run(
        [
            *("sh", "-c", 'trap "" HUP INT QUIT TERM TSTP TTIN; exec "$@"', "sh"),
            *(sys.executable, "-m", "jobwire", "conform", *arguments),
            *("--server", valkey_program()),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": f"{ROOT}/python{os.pathsep}{ROOT}/conformance"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "stop-idle  ok" in done.stderr, done.stdout + done.stderr


@pytest.mark.process
@over("hour", range(24))
def test_the_date_of_a_distant_zone_is_not_that_of_utc(hour: int) -> None:
    now = dt.datetime(2026, 2, 28, hour, 59, 59, tzinfo=dt.UTC)
    zone = ZoneInfo(distant_zone(now.timestamp()))
    assert now.astimezone(zone).date() != now.date()


@pytest.fixture
def midnight_passes(own_python: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have the first run of a case begin on the day before; return the dates asked for."""
    asked: list[str] = []

    def date() -> str:
        day = dt.datetime.now(dt.UTC).date() - dt.timedelta(days=0 if asked else 1)
        asked.append(day.isoformat())
        return asked[-1]

    monkeypatch.setattr(play, "date_in_utc", date)
    monkeypatch.setattr(run, "date_in_utc", date)
    return asked


@pytest.mark.process
def test_a_case_that_midnight_divides_is_run_again(midnight_passes: list[str]) -> None:
    """The counters of its jobs have the next date. [STAT-2]"""
    settings = replace(config.load(REFERENCE), claims=["worker/core", "worker/monitoring"])
    outcome = run.run(
        settings, cases.load(names=["stat-counters"]), (), watcher=Quiet(), program=valkey_program()
    )
    assert outcome.errors == []
    assert {verdict.status for verdict in outcome.verdicts} == {"pass"}, json.dumps(
        outcome.as_data()["checks"], indent=1
    )
    assert len(set(midnight_passes)) == 2
    assert len(midnight_passes) == 3, "start, end and second start"


# -- The state that checks see, while processes work and after `settle`. [REL-3] [SCHED-1]

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
