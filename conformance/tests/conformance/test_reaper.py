"""The reaper ends leftover processes, and servers can be stopped and started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.servers import Reaper, Server, valkey_program, wait_until
from jobwire_conformance.errors import EnvironmentFault
from tests.conformance.suite import ROOT

# Starts a server and a process in the same group, prints their pids, and waits.
OWNER = """
import json, subprocess, sys, time
from jobwire_conformance.sandbox.local_server import LocalServer
from jobwire_conformance.sandbox.reaper import Reaper

reaper = Reaper()
server = LocalServer(reaper, sys.argv[1])
sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
reaper.watch(sleeper.pid)
said = {"pids": [server.pid, sleeper.pid], "directory": str(reaper.directory)}
print(json.dumps(said), flush=True)
time.sleep(600)
"""


@pytest.fixture
def reaper() -> Iterator[Reaper]:
    with Reaper() as reaper:
        yield reaper


def running(pid: int) -> bool:
    """Return True if a process runs; a zombie does not run."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.mark.process
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_nothing_outlives_a_process_that_is_killed() -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, valkey_program()],
        env={**os.environ, "PYTHONPATH": str(ROOT / "conformance")},
        stdout=subprocess.PIPE,
    )
    assert owner.stdout is not None
    said = json.loads(owner.stdout.readline())
    owner.stdout.close()
    assert all(map(running, said["pids"]))
    owner.kill()
    owner.wait(10)
    wait_until(lambda: not any(map(running, said["pids"])), what="both processes to be gone")
    wait_until(lambda: not Path(said["directory"]).exists(), what="the directory to be gone")


def test_a_server_keeps_its_port_and_its_password(reaper: Reaper) -> None:
    server = Server(reaper, valkey_program(), "--appendonly", "yes", password="open sesame")
    try:
        port, client = server.port, server.client()
        client.set("a", 1)
        server.pause()
        server.restart()
        assert (server.port, client.get("a")) == (port, b"1")
        link = server.link()
        server.clear(link)
        link.close()
        assert client.dbsize() == 0
        server.kill()
        server.stop()  # the server is down, so nothing happens
        server.start()
        assert client.ping()
    finally:
        server.close()


def test_a_server_that_does_not_start_is_reported_with_its_log(reaper: Reaper) -> None:
    with pytest.raises(EnvironmentFault, match=r"does not start:\n(.|\n)*no-such-setting"):
        Server(reaper, valkey_program(), "--no-such-setting", "1")
