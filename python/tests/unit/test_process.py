"""jobwire.worker.process: signals, and reports to systemd, a supervisor or a file."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobwire import App
from jobwire.application.config import WorkerConfig
from jobwire.errors import NoReply, RedisRefused, RedisTrouble, RedisUnreachable
from jobwire.worker.process import process as process_module
from jobwire.worker.process.notify import SUPERVISOR, Notifier
from jobwire.worker.process.process import _may_pass, _Process
from tests.rows import over


@pytest.fixture
def process() -> _Process:
    return _Process(App("redis://127.0.0.1:1/0"), WorkerConfig(), Notifier({}))


def test_a_signal_that_the_system_lacks_is_said(
    process: _Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """SIG-3: a system without TTIN still runs jobs."""
    caplog.set_level(logging.INFO)
    monkeypatch.delattr(signal, "SIGTTIN")
    process._trap("TTIN")
    assert caplog.messages == ["this system has no signal TTIN"]


def test_a_handler_only_passes_the_signal_on(
    process: _Process, caplog: pytest.LogCaptureFixture
) -> None:
    """SIG-2: it can run between any two bytecodes, so it takes no lock and does not log."""
    caplog.set_level(logging.DEBUG)
    process._on_signal(signal.SIGTSTP, None)
    assert caplog.messages == []
    assert process._signals.get_nowait().name == "TSTP"  # type: ignore[union-attr]


def test_only_four_signals_come_through_redis(
    process: _Process, caplog: pytest.LogCaptureFixture
) -> None:
    """SIG-6, SIG-10: HUP and USR2 are for the terminal and the supervisor."""
    for name in ("HUP", "USR2", "KILL", "term", "TERM", "INT", "TSTP", "TTIN"):
        process._on_redis_signal(name)
    received = [process._signals.get_nowait() for _ in range(4)]
    assert [each and each.name for each in received] == ["TERM", "INT", "TSTP", "TTIN"]
    assert process._signals.empty()
    assert [record.args for record in caplog.records] == [("HUP",), ("USR2",), ("KILL",), ("term",)]


def test_a_redis_that_does_not_answer_delays_no_stop(
    process: _Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIG-1: Ctrl-C ends a worker at once that waits for Redis; other signals stay for later."""
    answer = threading.Event()
    monkeypatch.setattr(process._launcher, "check_server", lambda: answer.wait(60))
    for name in ("TSTP", "INT"):
        process._on_signal(getattr(signal, f"SIG{name}"), None)
    try:
        assert process._wait_for_redis("") is False
    finally:
        answer.set()


def test_a_signal_during_the_search_for_redis_is_heeded_later(
    process: _Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SIG-2: a worker that is quiet before it starts."""
    answer = threading.Event()
    monkeypatch.setattr(process._launcher, "check_server", lambda: answer.wait(60))
    process._on_signal(signal.SIGTSTP, None)
    threading.Timer(0.3, answer.set).start()
    assert process._wait_for_redis("") is True
    assert process._signals.get_nowait().name == "TSTP"  # type: ignore[union-attr]


def test_lines_that_a_job_prints_are_written_at_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only in the process of the command; also to a file, where Python would keep them."""
    monkeypatch.setattr(process_module._Process, "run", lambda self, source: 0)
    with (tmp_path / "out").open("w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        sys.stdout.write("before\n")  # as `print` does
        assert (tmp_path / "out").read_text() == ""
        process_module.run(App("redis://127.0.0.1:1/0"), WorkerConfig())
        sys.stdout.write("after\n")
        assert (tmp_path / "out").read_text() == "before\nafter\n"


@over(
    ("error", "passes"),
    [
        (RedisUnreachable("connection refused"), True),
        (NoReply("cut"), True),
        (RedisRefused("LOADING Redis is loading the dataset in memory"), True),
        (RedisRefused("OOM command not allowed"), True),
        (RedisRefused("NOREPLICAS Not enough good replicas to write."), True),
        (RedisRefused("READONLY You can't write against a read only replica."), True),
        (RedisRefused("NOPERM User x has no permissions"), False),
        (RedisRefused("WRONGTYPE processes is a string"), False),
    ],
)
def test_some_errors_pass_with_time(error: RedisTrouble, passes: bool) -> None:
    """ENV-6: a worker waits for a Redis that starts, and not for one that refuses it."""
    assert _may_pass(error) == passes
    error = RedisUnreachable("wrong password")
    error.refused = True
    assert not _may_pass(error)


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    name = str(tmp_path / "n") if request.param == "path" else f"@{tmp_path}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0", 1))
        listening.settimeout(10)
        yield name, listening


def test_every_message_is_one_datagram(systemd: tuple[str, socket.socket]) -> None:
    """A datagram has NAME=value lines; an unchanged status is not sent again."""
    name, listening = systemd
    notifier = Notifier({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "6000000"})
    notifier.ready("0 of 5 busy")
    notifier.status("0 of 5 busy")
    notifier.alive()
    notifier.status("1 of 5\nbusy", busy=1)
    notifier.reloading("again")
    notifier.stopping("bye")
    said = [listening.recv(4096).decode().splitlines() for _ in range(5)]
    assert said[:3] == [
        ["READY=1", "STATUS=0 of 5 busy"],
        ["WATCHDOG=1"],
        ["STATUS=1 of 5 busy", "X_BUSY=1"],
    ]
    assert [line.partition("=")[0] for line in said[3]] == ["RELOADING", "MONOTONIC_USEC", "STATUS"]
    assert said[4] == ["STOPPING=1", "STATUS=bye"]
    assert notifier.period == 3.0
    notifier.close()


def test_what_jobs_start_does_not_inherit_it() -> None:
    environ = {"NOTIFY_SOCKET": "", "WATCHDOG_USEC": "1", "WATCHDOG_PID": "1", "PATH": "/bin"}
    environ |= {"JOBWIRE_READY_FILE": "x"}
    Notifier(environ)
    assert environ == {"PATH": "/bin"}


@over(
    ("variables", "watchdog"),
    [
        ({"WATCHDOG_USEC": "4000000"}, 4.0),
        ({"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": str(os.getpid())}, 4.0),
        ({"WATCHDOG_USEC": "4000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_whose_watchdog_it_is(variables: dict[str, str], watchdog: float | None) -> None:
    assert Notifier(dict(variables)).watchdog == watchdog


def test_nobody_listens() -> None:
    """Without a listener, nothing is sent at any time."""
    notifier = Notifier({})
    assert notifier.period is None
    notifier.ready("x")
    notifier.alive()
    notifier.stopping("x")


@pytest.mark.parametrize(
    "address", ["vsock:2:1", "relative", "/no/such/socket", "@", "@nobody-here"]
)
def test_an_address_that_leads_nowhere_is_logged(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        notifier = Notifier({"NOTIFY_SOCKET": address})
    assert f"NOTIFY_SOCKET {address}" in caplog.text
    assert notifier.period is None


def test_who_stops_listening_does_no_harm(tmp_path: Path) -> None:
    name = str(tmp_path / "n")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name)
        notifier = Notifier({"NOTIFY_SOCKET": name})
    notifier.ready("x")
    notifier.close()


def test_the_file_exists_while_it_is_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "ready"
    notifier = Notifier({"JOBWIRE_READY_FILE": str(file)})
    notifier.alive()
    assert not file.exists()
    notifier.ready("x")
    os.utime(file, (1, 1))
    notifier.alive()
    assert file.stat().st_mtime > 1
    notifier.stopping("x")
    notifier.alive()
    assert not file.exists()
    hopeless = Notifier({"JOBWIRE_READY_FILE": str(tmp_path / "no" / "ready")})
    hopeless.ready("x")
    assert "the file is no longer updated" in caplog.text


def test_a_supervisor_sees_the_end_of_its_process_and_the_other_way_round() -> None:
    ours, theirs = socket.socketpair()
    notifier = Notifier({SUPERVISOR: str(theirs.detach())})
    assert notifier.supervised
    notifier.ready("x")
    assert ours.recv(100) == b"READY=1\nSTATUS=x\n"
    ours.close()
    notifier.wait_orphaned()
    notifier.status("still here")
    notifier.close()


STORM = """
import os, signal, subprocess, sys

from jobwire.cli.exits import EndSignals

signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as under nohup
signals, me = EndSignals(), os.getpid()
kills = f"os.kill({me}, 15), os.kill({me}, 2), os.kill({me}, 1)"
sender = subprocess.Popen(
    [sys.executable, "-c", f"import os\\nwhile os.getppid() == {me}: {kills}"],
    stderr=subprocess.DEVNULL,
)
for _ in range(5_000):
    signals.wait()
sender.kill()
"""


@pytest.mark.process
def test_signals_at_any_moment_are_caught() -> None:
    """An event that the handler sets hangs here, because its lock is held already."""
    result = subprocess.run(
        [sys.executable, "-c", STORM], capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
