"""`--processes`: several workers under one parent, with any fate of any of them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.servers import Server, wait_until
from jobwire import Client
from tests.apps import recording
from tests.fleet import Fleet, gone

APP = "tests.apps.recording:app"
SHOP = """
import os, time
import redis
from jobwire import App

app = App()
kept = []

@app.job(name="Hog")
def hog(mib):
    kept.append(os.urandom(1 << 20) * mib)

@app.job(name="Orphan")
def orphan(path):
    # A grandchild whose parent does not wait for it.
    if os.fork() == 0:
        if os.fork() == 0:
            time.sleep(0.2)
            os._exit(0)
        os._exit(0)
    os.wait()
    open(path, "w").write("done")

@app.job(name="Vanish")
def vanish(status):
    os._exit(status)
"""


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def start(fleet: Fleet, server: Server, *arguments: str, app: str = APP, **env: Any) -> Fleet:
    return fleet.start(app, "--redis", server.url, *arguments, **env)


def traces(server: Server, key: str) -> list[Any]:
    found: Any = server.client().lrange(key, 0, -1)
    return [json.loads(text) for text in found]


def registered(server: Server) -> set[int]:
    members: Any = server.client().smembers("processes")
    return {int(member.split(b":")[-2]) for member in members}


def holding(server: Server) -> int:
    """Return the pid of the process that runs the first job."""

    def find() -> int | None:
        client = server.client()
        if not traces(server, recording.STARTED):
            return None
        keys: Any = client.keys("jobwire:private:*")
        return next((int(key.split(b":")[-2]) for key in keys if client.hlen(key)), None)

    return wait_until(find, 60) or 0


def test_a_process_that_dies_is_replaced(server: Server, fleet: Fleet) -> None:
    """REL-4: and the log says so; the others continue."""
    start(fleet, server, "--processes", "2")
    first, second = fleet.ready(2)
    os.kill(first, signal.SIGKILL)
    fleet.wait_logged("ended with signal 9")
    new = wait_until(lambda: fleet.booted()[2:], 60)[0]
    assert not gone(second)
    assert {second, new} <= registered(server)
    fleet.send(signal.SIGINT)
    assert fleet.wait() == 0


@pytest.mark.parametrize(
    ("app", "redis", "status", "says"),
    [
        ("no_such_module:app", None, 3, "no module 'no_such_module'"),
        (APP, "redis://127.0.0.1:1/x", 2, "is not a database number"),
    ],
)
def test_who_cannot_start_at_all_exits_as_without_processes(
    server: Server, fleet: Fleet, app: str, redis: str | None, status: int, says: str
) -> None:
    """ENV-1: the exit status tells the reason, and the log says it once."""
    fleet.start(app, "--redis", redis or server.url, "--processes", "3")
    assert fleet.wait() == status
    assert fleet.log.read_text().count(says) == 1
    assert len(fleet.logged("before it was ready")) == 1


def test_a_crash_loop_is_said_and_slow_and_can_be_mended(
    server: Server, fleet: Fleet, tmp_path: Path
) -> None:
    """The other process continues meanwhile."""
    shop = tmp_path / "shop.py"
    shop.write_text(SHOP)
    start(fleet, server, "--processes", "2", app="shop:app")
    first, second = fleet.ready(2)
    shop.write_text("1 / 0")
    os.kill(first, signal.SIGKILL)
    fleet.wait_logged("exit status 3, 2 times in a row right after its start; next try in 2 s")
    assert registered(server) >= {second}
    shop.write_text(SHOP)
    wait_until(lambda: len(fleet.booted()) == 3, 60)
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0


@pytest.mark.real_time
def test_there_is_no_hope_when_nobody_can_start(
    server: Server, fleet: Fleet, tmp_path: Path
) -> None:
    """After five tries each, so that the service manager notices."""
    shop = tmp_path / "shop.py"
    shop.write_text(SHOP)
    start(fleet, server, "--processes", "2", app="shop:app")
    pids = fleet.ready(2)
    shop.write_text("1 / 0")
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    assert fleet.wait(240) == 3
    assert fleet.logged("every worker process ends right after its start")


def test_a_second_term_kills(server: Server, fleet: Fleet, client: Client) -> None:
    """SIG-1: exit status 1 at once."""
    start(fleet, server, "--processes", "2", "-t", "60")
    pids = fleet.ready(2)
    client.push("Hold", [1])
    wait_until(lambda: traces(server, recording.STARTED))
    fleet.send(signal.SIGTERM)
    fleet.wait_logged("quiet")
    fleet.send(signal.SIGTERM)
    assert fleet.wait(50) == 1
    assert all(map(gone, pids))


def test_one_signal_to_everybody_does_not_force(
    server: Server, fleet: Fleet, client: Client
) -> None:
    """SIG-1: systemd's KillMode=control-group sends the signal to parent and children.

    A terminal signals its foreground group, which has only the parent.
    """
    start(fleet, server, "--processes", "2", "-c", "1")
    pids = fleet.ready(2)
    assert registered(server) == {os.getpgid(pid) for pid in pids} == set(pids)
    client.push_bulk("Hold", [[1], [2]])
    wait_until(lambda: len(traces(server, recording.STARTED)) == 2)
    for pid in [*pids, fleet.process.pid]:
        os.kill(pid, signal.SIGTERM)
    fleet.wait_logged("quiet", 2)
    server.client().set(recording.RELEASE, 1)
    assert fleet.wait() == 0
    assert len(traces(server, recording.RAN)) == 2
    assert registered(server) == set()
    assert all(map(gone, pids))


def test_tstp_quiets_all_and_the_dead_stay_dead(
    server: Server, fleet: Fleet, client: Client
) -> None:
    """SIG-2, FETCH-5."""
    start(fleet, server, "--processes", "2")
    first, _ = fleet.ready(2)
    fleet.send(signal.SIGTSTP)
    fleet.wait_logged("quiet: no more jobs are started", 2)
    client.push("Note", ["late"])
    os.kill(first, signal.SIGKILL)
    fleet.wait_logged("not replaced, because all are quiet")
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0
    assert len(fleet.booted()) == 2
    assert server.client().llen("queue:default") == 1


def test_ttin_has_all_dump_their_stacks(server: Server, fleet: Fleet) -> None:
    """SIG-3: each line names its process."""
    start(fleet, server, "--processes", "2")
    pids = fleet.ready(2)
    fleet.send(signal.SIGTTIN)
    wait_until(lambda: {line["pid"] for line in fleet.logged("thread ")} == set(pids))
    assert len(fleet.logged("ready, 0 busy")) == 2


@pytest.mark.parametrize(
    "number", [signal.SIGUSR2, pytest.param(signal.SIGHUP, marks=pytest.mark.full)]
)
def test_a_rolling_restart_loses_nothing(
    server: Server, fleet: Fleet, client: Client, number: signal.Signals
) -> None:
    """SIG-1, SIG-5: one after the other; the running job ends, and two processes always run."""
    start(fleet, server, "--processes", "2", "-c", "1")
    old = fleet.ready(2)
    client.push("Hold", [1])
    holder = holding(server)
    fleet.send(number)
    deadline = time.monotonic() + 60
    while len(fleet.booted()) < 4:
        assert time.monotonic() < deadline, "no successors"
        alive = [pid for pid in fleet.booted() if not gone(pid)]
        assert 2 <= len(alive) <= 3
        if gone(next(pid for pid in old if pid != holder)) or fleet.logged("TERM: stopping"):
            server.client().set(recording.RELEASE, 1)
        time.sleep(0.02)
    wait_until(lambda: all(map(gone, old)), 60)
    assert traces(server, recording.RAN) == [["Hold", [1]]]
    client.push("Note", ["after"])
    wait_until(lambda: len(traces(server, recording.RAN)) == 2)
    assert registered(server) == set(fleet.booted()[2:])
    assert not fleet.logged("put back")
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0


def test_a_restart_into_something_broken_changes_nothing(
    server: Server, fleet: Fleet, tmp_path: Path
) -> None:
    shop = tmp_path / "shop.py"
    shop.write_text(SHOP)
    start(fleet, server, "--processes", "2", app="shop:app")
    pids = fleet.ready(2)
    shop.write_text("1 / 0")
    fleet.send(signal.SIGUSR2)
    fleet.wait_logged("ended with exit status 3 before it was ready; the old ones stay")
    assert registered(server) == set(pids)
    shop.write_text(SHOP)
    fleet.send(signal.SIGUSR2)
    wait_until(lambda: all(map(gone, pids)), 60)
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0


def test_children_of_a_killed_parent_stop_in_good_order(
    server: Server, fleet: Fleet, client: Client
) -> None:
    """SIG-1: also a process with a job; the job ends first."""
    start(fleet, server, "--processes", "2", "-c", "1")
    pids = fleet.ready(2)
    client.push("Hold", [1])
    wait_until(lambda: traces(server, recording.STARTED))
    fleet.process.kill()
    fleet.process.wait(60)
    fleet.wait_logged("the supervising process has ended", 2)
    server.client().set(recording.RELEASE, 1)
    wait_until(lambda: all(map(gone, pids)), 60)
    assert traces(server, recording.RAN) == [["Hold", [1]]]
    assert registered(server) == set()


def test_a_process_that_grows_is_replaced(
    server: Server, fleet: Fleet, client: Client, tmp_path: Path
) -> None:
    """It ends its jobs after its successor has taken over."""
    (tmp_path / "shop.py").write_text(SHOP)
    arguments = ("--processes", "2", "--memory-limit", "300")
    start(fleet, server, *arguments, app="shop:app")
    pids = fleet.ready(2)
    client.push("Hog", [400])
    line = fleet.wait_logged("the limit is 300; replacing it")[0]
    grown = next(pid for pid in pids if f"pid {pid})" in line["msg"])
    wait_until(lambda: gone(grown), 60)
    assert fleet.wait_logged(f"takes over from pid {grown}")
    assert len(fleet.booted()) == 3
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0


def test_a_single_process_that_grows_ends(
    server: Server, fleet: Fleet, client: Client, tmp_path: Path
) -> None:
    """SIG-1: exit status 0; the service manager may start it again."""
    (tmp_path / "shop.py").write_text(SHOP)
    start(fleet, server, "--memory-limit", "300", app="shop:app")
    client.push("Hog", [400])
    assert fleet.wait() == 0
    assert fleet.logged("above the limit of 300")


@pytest.mark.real_time
def test_a_process_that_hangs_is_replaced(server: Server, fleet: Fleet) -> None:
    """WATCHDOG_USEC: systemd would watch only the parent."""
    start(fleet, server, "--processes", "2", WATCHDOG_USEC="10000000", JOBWIRE_READY_FILE="ready")
    first, second = fleet.ready(2)
    os.kill(first, signal.SIGSTOP)
    fleet.wait_logged("sent no message for 10 s; killing it")
    wait_until(lambda: len(fleet.booted()) == 3, 60)
    assert gone(first)
    assert not gone(second)


# -- process 1 of a container

UNSHARE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


@pytest.fixture
def container() -> None:
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    tried = subprocess.run([*UNSHARE, "true"], capture_output=True, check=False, timeout=60)
    if tried.returncode:
        pytest.skip("no right to make process namespaces")


@pytest.mark.usefixtures("container")
@pytest.mark.parametrize("processes", [pytest.param("1", marks=pytest.mark.full), "2"])
def test_process_1_hears_term_and_leaves_no_zombie(
    server: Server, fleet: Fleet, client: Client, tmp_path: Path, processes: str
) -> None:
    """SIG-1: the kernel gives orphans to process 1, and no signal that it does not handle."""
    (tmp_path / "shop.py").write_text(SHOP)
    arguments = ("shop:app", "--redis", server.url, "--processes", processes)
    fleet.start(*arguments, before=UNSHARE)
    wait_until(lambda: len(registered(server)) == int(processes), 60)
    shell = Path(f"/proc/{fleet.process.pid}/task/{fleet.process.pid}/children").read_text()
    first = int(shell.split()[0])
    client.push("Orphan", [str(tmp_path / "orphan")])
    wait_until(lambda: (tmp_path / "orphan").exists(), 60)

    def children() -> list[str]:
        return Path(f"/proc/{first}/task/{first}/children").read_text().split()

    wait_until(lambda: len(children()) == int(processes), 60)
    os.kill(first, signal.SIGTERM)
    assert fleet.wait() == 0
    assert registered(server) == set()


@pytest.mark.usefixtures("container")
def test_process_1_ends_with_the_status_of_its_only_worker(
    server: Server, fleet: Fleet, client: Client, tmp_path: Path
) -> None:
    """As without a parent."""
    (tmp_path / "shop.py").write_text(SHOP)
    fleet.start("shop:app", "--redis", server.url, before=UNSHARE)
    wait_until(lambda: registered(server), 60)
    client.push("Vanish", [7])
    assert fleet.wait() == 7


# -- systemd


class Systemd:
    """A socket at NOTIFY_SOCKET that records messages."""

    def __init__(self, address: str) -> None:
        self.said: list[str] = []
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind("\0" + address[1:] if address[0] == "@" else address)
        self._socket.setblocking(False)

    def heard(self, words: str) -> bool:
        while True:
            try:
                self.said += self._socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return any(words in line for line in self.said)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(params=["path", pytest.param("abstract", marks=pytest.mark.full)])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Systemd]:
    name = f"@jobwire-{os.getpid()}-{tmp_path.name}"
    listening = Systemd(str(tmp_path / "notify") if request.param == "path" else name)
    yield listening
    listening.close()


@pytest.mark.parametrize("processes", [pytest.param("1", marks=pytest.mark.full), "2"])
def test_systemd_hears_it_all(
    server: Server, fleet: Fleet, client: Client, tmp_path: Path, systemd: Systemd, processes: str
) -> None:
    """READY when all processes are, then watchdog messages and a status; STOPPING at the end."""
    start(
        *(fleet, server, "--processes", processes, "-c", "1"),
        NOTIFY_SOCKET=systemd.address,
        WATCHDOG_USEC="10000000",
        JOBWIRE_READY_FILE="ready",
    )
    wait_until(lambda: systemd.heard("READY=1"), 60)
    assert len(registered(server)) == int(processes)
    wait_until(lambda: systemd.heard("WATCHDOG=1"))
    wait_until((tmp_path / "ready").exists)
    client.push("Hold", [1])
    wait_until(lambda: systemd.heard(f"1 of {processes} busy"))
    if processes == "2":
        assert systemd.heard("STATUS=2 of 2 processes, 1 of 2 busy")
        systemd.said.clear()
        server.client().set(recording.RELEASE, 1)
        fleet.send(signal.SIGUSR2)
        wait_until(lambda: systemd.heard("RELOADING=1"))
        assert systemd.heard("MONOTONIC_USEC=")
        wait_until(lambda: systemd.heard("READY=1"), 60)
        assert len(fleet.booted()) == 4
    server.client().set(recording.RELEASE, 1)
    assert not systemd.heard("STOPPING=1")
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0
    assert systemd.heard("STOPPING=1")
    assert not (tmp_path / "ready").exists()


HANGING = """
import dataclasses, threading
from jobwire.worker.background import heartbeat
from jobwire.worker.process import notify, process
from tests.apps.recording import app

process.HEARTBEAT_STUCK_S, notify.STATUS_INTERVAL_S = 1.0, 0.1
do_all, begun = heartbeat.HeartbeatThread._do_all, []

def hang(self):
    self._timings = dataclasses.replace(self._timings, heartbeat_interval=0.1)
    yield from do_all(self)
    begun.append(1)
    if len(begun) > 5:
        open("stuck", "w").close()
        threading.Event().wait()

heartbeat.HeartbeatThread._do_all = hang
"""


@pytest.mark.real_time
def test_a_heartbeat_that_hangs_is_logged_without_a_service_manager(
    server: Server, fleet: Fleet, tmp_path: Path
) -> None:
    """As when the look-up of a host name hangs."""
    (tmp_path / "hanging.py").write_text(HANGING)
    start(fleet, server, app="hanging:app")
    wait_until((tmp_path / "stuck").exists, 90)
    wait_until(lambda: bool(fleet.logged("heartbeat thread stuck for")), 90)
    fleet.send(signal.SIGTERM)
    fleet.wait()


@pytest.mark.real_time
def test_a_heartbeat_that_hangs_gives_no_sign_of_life(
    server: Server, fleet: Fleet, tmp_path: Path
) -> None:
    """BEAT-2: a healthy main thread is not enough."""
    (tmp_path / "hanging.py").write_text(HANGING)
    systemd = Systemd(str(tmp_path / "notify"))
    env = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "400000"}
    start(fleet, server, app="hanging:app", **env)
    wait_until(lambda: systemd.heard("WATCHDOG=1"), 60)
    wait_until((tmp_path / "stuck").exists, 60)
    fleet.wait_logged("heartbeat thread stuck for")
    assert fleet.logged("the process is no longer live")

    def silent() -> bool:
        systemd.heard("")
        systemd.said.clear()
        time.sleep(0.5)  # more than two watchdog periods
        return not systemd.heard("WATCHDOG=1")

    wait_until(silent)  # a slow machine may have sent one before it was stuck
    systemd.close()
