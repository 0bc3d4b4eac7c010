"""The surroundings of a run: ignored signals, time zone and midnight decide no check."""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from harness.servers import valkey_program
from jobwire_conformance import config
from jobwire_conformance.cases import case as cases
from jobwire_conformance.run import play, run
from jobwire_conformance.sandbox.processes import distant_zone
from tests.conformance.suite import REFERENCE, ROOT, Quiet, adapter
from tests.rows import over

pytestmark = pytest.mark.process

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
for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, lambda *_: os._exit(0))
host, port = os.environ["JOBWIRE_REDIS_URL"].split("/")[2].split(":")
redis = socket.create_connection((host, int(port)))
while True:
    redis.sendall(b"BRPOP queue:default 1\\r\\n")
    redis.recv(65536)
"""


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


@over("hour", range(24))
def test_the_date_of_a_distant_zone_is_not_that_of_utc(hour: int) -> None:
    now = dt.datetime(2026, 2, 28, hour, 59, 59, tzinfo=dt.UTC)
    zone = ZoneInfo(distant_zone(now.timestamp()))
    assert now.astimezone(zone).date() != now.date()


@pytest.fixture
def midnight_passes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have the first run of a case begin on the day before; return the dates asked for."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "python"))
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
