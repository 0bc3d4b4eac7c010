"""Signals that the application also handles, and signals without a meaning for the worker."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from harness.servers import Reaper, Server, wait_until
from jobwire import Client
from tests.fleet import Fleet, gone
from tests.workers import environment

SHOP = """
import signal, sys, threading
from jobwire import App

app = App()

def earlier(number, frame):
    open("earlier", "a").write(signal.Signals(number).name + "\\n")
    if number == signal.SIGTTIN:
        raise ValueError("earlier one broke")
    if number == signal.SIGTERM:
        sys.exit(9)

for name in ("SIGTERM", "SIGTTIN", "SIGTSTP", "SIGUSR1"):
    signal.signal(getattr(signal, name), earlier)

@app.on("startup")
def refresh_cache():
    threading.Thread(target=lambda: 1 / 0, name="shop-cache").start()

@app.job(name="Crash", isolated=True, retry=False)
def crash():
    import os
    os.abort()

@app.job(name="BreakLoop")
async def break_loop():
    import asyncio
    asyncio.get_running_loop()._selector.close()

@app.job(name="Fine", isolated=True)
def fine(path):
    open(path, "w").write("fine")
"""


@pytest.fixture
def fleet(_reaper: Reaper, tmp_path: Path) -> Iterator[Fleet]:
    (tmp_path / "shop.py").write_text(SHOP)
    fleet = Fleet(_reaper, tmp_path)
    yield fleet
    fleet.close()


def test_earlier_handlers_are_called_too(server: Server, fleet: Fleet, tmp_path: Path) -> None:
    """SIG-1, SIG-2, SIG-3: with any error of theirs, even SystemExit."""
    fleet.start("shop:app", "--redis", server.url)
    fleet.wait_logged(", process ")
    called = tmp_path / "earlier"
    for number in (signal.SIGTTIN, signal.SIGUSR1, signal.SIGTSTP, signal.SIGTERM):
        fleet.send(number)
        wait_until(lambda number=number: called.exists() and number.name in called.read_text())  # type: ignore[misc]
    assert fleet.wait() == 0
    line = fleet.logged("the application's TTIN handler raised an exception")[0]
    assert "earlier one broke" in line["exc"]
    assert fleet.logged("the application's TERM handler raised an exception")
    assert called.read_text().split() == ["SIGTTIN", "SIGUSR1", "SIGTSTP", "SIGTERM"]


ELSEWHERE = """
import signal, threading
from jobwire import App

app = App()

@app.job
def work():
    pass

# From here on the kernel can deliver TERM to this thread only, which ignores it.
threading.Thread(target=threading.Event().wait, daemon=True, name="elsewhere").start()
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
"""


def test_a_signal_that_another_thread_gets(server: Server, fleet: Fleet, tmp_path: Path) -> None:
    """SIG-1: the main thread, which alone may handle it, notices it without a wakeup."""
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    fleet.start("elsewhere:app", "--redis", server.url)
    fleet.wait_logged(", process ")
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0


@pytest.mark.parametrize(("arguments", "shown"), [((), True), (("--log-format", "json"), False)])
def test_people_are_greeted(arguments: tuple[str, ...], shown: bool, tmp_path: Path) -> None:
    """A terminal shows a banner; a log for machines does not."""
    (tmp_path / "shop.py").write_text(SHOP)
    master, slave = pty.openpty()
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "jobwire", "worker", "shop:app", *arguments],
            cwd=tmp_path,
            env=environment(JOBWIRE_REDIS_URL="redis://127.0.0.1:1/x"),  # which ends it at once
            stdout=subprocess.PIPE,
            stderr=slave,
            timeout=60,
            check=False,
        )
        said = os.read(master, 65536).decode()
    finally:
        os.close(slave)
        os.close(master)
    assert (ended.returncode, ended.stdout) == (2, b""), said
    assert ("| job |" in said) == shown
    assert "127.0.0.1:1" in said


@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=pytest.mark.full)])
def test_a_closed_terminal_stops(server: Server, fleet: Fleet, processes: str) -> None:
    """SIG-1: HUP from a terminal does not ask for a restart."""
    master, slave = pty.openpty()
    said: list[bytes] = []

    def read() -> None:  # otherwise writers to it wait for ever
        with suppress(OSError):
            while part := os.read(master, 4096):
                said.append(part)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        fleet.start(
            *("shop:app", "--redis", server.url, "--processes", processes),
            before=("sh", "-c", 'exec "$@" 2>"$TEST_TERMINAL"', "sh"),
            TEST_TERMINAL=os.ttyname(slave),
        )
        redis = server.client()
        wait_until(lambda: redis.scard("processes") == int(processes), 60, f"{processes}: {said}")
        fleet.send(signal.SIGHUP)
        assert fleet.wait() == 0, said
        assert redis.scard("processes") == 0
    finally:
        os.close(slave)
        reader.join(60)  # all processes have closed the terminal, so reading ends
        os.close(master)


@pytest.mark.parametrize("processes", ["1", pytest.param("2", marks=pytest.mark.full)])
def test_an_orderly_end_is_pythons_own(
    server: Server, fleet: Fleet, tmp_path: Path, processes: str
) -> None:
    """SIG-1: functions that the application registered with `atexit` run in each process.

    A thread of the application that died before was an ordinary line of the log.
    """
    with (tmp_path / "shop.py").open("a") as file:
        file.write(
            "import atexit, os\n"
            "atexit.register(lambda: open('left', 'a').write(f'{os.getpid()}\\n'))\n"
        )
    fleet.start("shop:app", "--redis", server.url, "--processes", processes)
    redis = server.client()
    wait_until(lambda: redis.scard("processes") == int(processes), 60)
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0
    workers = fleet.booted()
    assert len(workers) == int(processes)
    died = fleet.logged("thread shop-cache died")
    assert {line["lvl"] for line in died} == {"ERROR"}
    assert all("ZeroDivisionError" in line["exc"] for line in died)
    assert all(line.startswith("{") for line in fleet.log.read_text().splitlines())
    assert set(workers) <= set(map(int, (tmp_path / "left").read_text().split()))


def test_nohup_outlives_its_terminal(server: Server, fleet: Fleet) -> None:
    """SIG-1, SIG-4: a signal that was ignored before stays ignored, as one without a meaning."""
    fleet.start("shop:app", "--redis", server.url, before=("nohup",))
    fleet.wait_logged(", process ")
    fleet.send(signal.SIGHUP)
    fleet.send(signal.SIGUSR2)
    fleet.wait_logged("there are none; ignored")
    assert not fleet.logged("stopping")
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0


def test_a_worker_survives_what_an_isolated_job_does(
    server: Server, fleet: Fleet, tmp_path: Path
) -> None:
    """RETRY-1, DEAD-1: an abort in C is an ordinary failure."""
    fleet.start("shop:app", "--redis", server.url, "-c", "1")
    with Client(server.url) as client:
        client.push("Crash", [], retry=0)
        client.push("Fine", [str(tmp_path / "fine")])
    wait_until((tmp_path / "fine").exists, 60)
    assert fleet.logged("JobCrashed: its process was killed by signal 6 (SIGABRT)")
    redis = server.client()
    wait_until(lambda: redis.zcard("dead") == 1)
    assert b"jobwire.errors.JobCrashed" in redis.zrange("dead", 0, -1)[0]
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0


def test_a_process_whose_event_loop_cannot_run_ends(server: Server, fleet: Fleet) -> None:
    """REL-4: with status 1, so that others take over; its jobs are in their queue or done."""
    fleet.start("shop:app", "--redis", server.url, "-c", "4", "-t", "1")
    with Client(server.url) as client:
        client.push_bulk("BreakLoop", [[]] * 3)
    assert fleet.wait() == 1
    assert fleet.logged("the event loop of async jobs cannot run")[0]["lvl"] == "CRITICAL"
    redis = server.client()
    assert redis.keys("jobwire:private:*") == []
    assert redis.llen("queue:default") + int(redis.get("stat:processed") or 0) == 3


def test_an_isolated_job_is_put_back_and_interrupted(
    server: Server, fleet: Fleet, tmp_path: Path
) -> None:
    """SIG-5, FETCH-6: at the deadline; its process ends with the worker."""
    out = tmp_path / "out"
    fleet.start("tests.apps.isolated:app", "--redis", server.url, "-t", "1")
    with Client(server.url) as client:
        client.push("Wait", [str(out)])
    wait_until(lambda: out.exists() and out.read_text().endswith("\n"), 60)
    fleet.send(signal.SIGTERM)
    assert fleet.wait() == 0
    pid, interrupted = out.read_text().split()
    assert interrupted == "interrupted"
    wait_until(lambda: gone(int(pid)))
    redis = server.client()
    assert redis.llen("queue:default") == 1
    assert not redis.exists("retry", "dead", "stat:failed")


def test_the_time_limit_of_an_isolated_job(server: Server, fleet: Fleet) -> None:
    """RETRY-1: it is killed, and tried again as after any failure."""
    fleet.start("tests.apps.isolated:app", "--redis", server.url)
    with Client(server.url) as client:
        client.push("Slow", [])
    redis = server.client()
    wait_until(lambda: redis.zcard("retry") == 1, 60)
    payload = redis.zrange("retry", 0, -1)[0]
    assert b'"error_class":"jobwire.errors.JobTimeout"' in payload
    assert b"still running after 0.5 s" in payload
