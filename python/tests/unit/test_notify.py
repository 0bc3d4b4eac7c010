"""jobwire.worker.process.notify: reports to systemd, a supervisor or a file."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobwire.worker.process.notify import SUPERVISOR, Notifier
from tests.rows import over


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
