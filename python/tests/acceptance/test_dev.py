"""`jobwire dev`: its server is found by programs, and a change of a file reloads the worker."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from harness.servers import Reaper, Server, wait_until
from jobwire.connection import embedded
from tests.fleet import gone
from tests.workers import environment

APP = """
import pathlib
import time
from jobwire import App

app = App()

@app.job(queue="mail")
def touch(name):
    pathlib.Path(name).write_text("VERSION")

@app.job
def hold():
    pathlib.Path("held").touch()
    while not pathlib.Path("end").exists():
        time.sleep(0.01)
    pathlib.Path("held").unlink()
"""
CLIENT = """
import sys
from jobs import hold, touch

touch.enqueue(sys.argv[1]) if sys.argv[1:] else hold.enqueue()
"""


class Dev:
    """`jobwire dev` with its reload, in a directory."""

    def __init__(self, reaper: Reaper, directory: Path, *arguments: str, **env: str) -> None:
        self._reaper = reaper
        self._directory = directory
        self._log = directory / "dev.log"
        # The page is a process more.
        page = [] if "--web" in arguments or "PYTHONPATH" in env else ["--no-web"]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jobwire", "dev", "jobs:app", *page, *arguments],
                cwd=directory,
                env=environment(**env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        reaper.watch(self.process.pid)

    @property
    def log(self) -> str:
        return self._log.read_text()

    def wait_logged(self, words: str, count: int = 1) -> None:
        try:
            wait_until(lambda: self.log.count(words) >= count, what=f"{words!r} {count} times")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.log}") from None

    def write(self, version: str, *, more: str = "") -> None:
        (self._directory / "jobs.py").write_text(APP.replace("VERSION", version) + more)

    def change(self, version: str, *, more: str = "") -> None:
        """Change the application until a restart shows that the watch has begun."""
        before = self.log.count("restarting: jobs.py changed")

        def noticed() -> bool:
            self.write(version, more=more)
            with suppress(AssertionError):
                wait_until(lambda: self.log.count("restarting: jobs.py changed") > before, 5)
                return True
            return False

        wait_until(noticed, what=f"a restart; {self.log}")

    def enqueue(self, *arguments: str, env: dict[str, str] | None = None) -> None:
        """Run a program whose application has no URL."""
        ended = subprocess.run(
            [sys.executable, "client.py", *arguments],
            cwd=self._directory,
            env=environment(**env or {}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr

    def ran(self, name: str) -> str:
        """Run the job `touch`; return the version of the code that ran."""
        path = self._directory / name
        self.enqueue(name)
        wait_until(lambda: path.exists() and path.read_text(), what=f"{name}; {self.log}")
        return path.read_text()

    def server(self) -> int:
        """Return the process of the server."""
        with redis.Redis.from_url(embedded.find(self._directory) or "") as client:
            info: Any = client.info("server")
            return int(info["process_id"])

    def end(self, how: signal.Signals) -> int:
        self.process.send_signal(how)
        return self.process.wait(60)

    def close(self) -> None:
        if self.process.poll() is None:
            self.end(signal.SIGTERM)
        self._reaper.release(self.process.pid)


@pytest.fixture
def dev(_reaper: Reaper, tmp_path: Path) -> Iterator[Callable[..., Dev]]:
    """Start `jobwire dev` for an application in the test's directory."""
    (tmp_path / "jobs.py").write_text(APP)
    (tmp_path / "client.py").write_text(CLIENT)
    with ExitStack() as running:

        def start(*arguments: str, **env: str) -> Dev:
            started = Dev(_reaper, tmp_path, *arguments, **env)
            running.callback(started.close)
            return started

        yield start
    if embedded.find(tmp_path):  # true only after a failure
        embedded.start(tmp_path).close()


def test_a_change_reloads_the_worker(dev: Callable[..., Dev], tmp_path: Path) -> None:
    """The new code runs; a running job is put back; the server stays up."""
    running = dev("-t", "0.1", "--port", str(port := free_port()))
    running.wait_logged("at redis://127.0.0.1:")
    running.wait_logged(", process ")
    assert embedded.find(tmp_path) == f"redis://127.0.0.1:{port}/0"
    assert running.ran("one") == "VERSION"
    server = running.server()
    running.enqueue()
    wait_until((tmp_path / "held").exists, what="the job to run")
    running.change("the second version")
    running.wait_logged("put back 1 unfinished job")
    running.wait_logged(", process ", 2)
    assert running.server() == server
    assert running.ran("two") == "the second version"
    (tmp_path / "end").touch()  # the job runs again, and ends now
    wait_until(lambda: not (tmp_path / "held").exists(), what="the end of the job")

    assert running.end(signal.SIGINT) == 0
    assert gone(server)
    assert embedded.find(tmp_path) is None


def test_a_syntax_error_waits_for_the_next_change(dev: Callable[..., Dev], tmp_path: Path) -> None:
    running = dev()
    running.wait_logged(", process ")
    server = running.server()
    running.change("broken", more="def f(:\n")
    running.wait_logged("jobs.py:18: SyntaxError")
    running.wait_logged("the worker ended with exit status 3; it starts again after a change")
    assert running.server() == server
    running.change("mended")
    running.wait_logged(", process ", 2)
    assert running.ran("one") == "mended"
    assert running.server() == server
    assert running.end(signal.SIGTERM) == 0
    assert embedded.find(tmp_path) is None


def test_a_broken_application_at_the_start_waits_as_well(
    dev: Callable[..., Dev], tmp_path: Path
) -> None:
    (tmp_path / "jobs.py").write_text("import jobwire\napp = jobwire.App()\n")
    running = dev()
    running.wait_logged("'jobs:app' defines no jobs")
    running.wait_logged("it starts again after a change")
    assert embedded.find(tmp_path)  # for programs that start before the change
    running.change("first")
    assert running.process.poll() is None
    running.wait_logged(", process ")
    assert running.ran("one") == "first"


def test_a_crash_waits_and_leaves_no_server(dev: Callable[..., Dev], tmp_path: Path) -> None:
    running = dev()
    running.wait_logged(", process ")
    server = running.server()
    (worker,) = children(running.process.pid)
    os.kill(worker, signal.SIGKILL)
    running.wait_logged("the worker ended with signal 9")
    assert running.end(signal.SIGTERM) == 0
    assert embedded.find(tmp_path) is None
    wait_until(lambda: gone(server), what="the end of the server")


def test_the_worker_ends_with_its_parent(dev: Callable[..., Dev], tmp_path: Path) -> None:
    running = dev()
    running.wait_logged(", process ")
    assert running.end(signal.SIGKILL) == -signal.SIGKILL
    wait_until(lambda: embedded.find(tmp_path) is None, what="the end of the server")


def test_what_no_change_mends_ends_it(dev: Callable[..., Dev]) -> None:
    refused = dev("--redis", "http://x")
    assert refused.process.wait(60) == 2
    assert "restarting" not in refused.log


def test_it_says_which_packages_are_missing(dev: Callable[..., Dev], tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import importlib.util as util\nold = util.find_spec\n"
        "HIDDEN = ['watchfiles', 'jinja2', 'uvicorn']\n"
        "util.find_spec = lambda name, *a: None if name in HIDDEN else old(name, *a)\n"
    )
    path = f"{environment()['PYTHONPATH']}{os.pathsep}{hidden}"
    running = dev(PYTHONPATH=path)
    running.wait_logged("watchfiles is missing; pip install 'jobwire[dev]'")
    running.wait_logged("no page of queues and jobs: needs jinja2, uvicorn: pip install 'jobwire[w")
    running.wait_logged(", process ")
    assert running.ran("one") == "VERSION"


def test_it_says_which_server_it_uses(dev: Callable[..., Dev], server: Server) -> None:
    """A variable that was exported once decides about each later start in this shell."""
    running = dev(REDIS_URL=server.url)
    running.wait_logged(
        f"jobwire dev: Redis at {server.url} (from REDIS_URL), no server of its own; "
        "unset REDIS_URL for a server of this directory"
    )
    running.wait_logged(", process ")
    assert running.end(signal.SIGTERM) == 0
    flagged = dev("--redis", server.url)
    flagged.wait_logged(f"Redis at {server.url} (from --redis), no server of its own\n")


def test_a_server_without_a_worker(dev: Callable[..., Dev], tmp_path: Path) -> None:
    """It runs until Ctrl-C, also where a variable names another Redis."""
    running = dev("--server-only", REDIS_URL="redis://127.0.0.1:1/0")
    running.wait_logged("jobwire dev: Valkey at redis://127.0.0.1:")
    assert children(running.process.pid) == [running.server()]
    server = running.server()
    assert running.end(signal.SIGINT) == 0
    assert gone(server)
    assert ", process " not in running.log


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]


def free_port() -> int:
    """Return a port in the range of `jobwire dev` that no process uses."""
    for port in range(29_999, 20_000, -1):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return port
    raise AssertionError("no port is free")


BESIDE = """
import os
import pathlib
import signal
import threading

pathlib.Path("beside").write_text(os.environ["JOBWIRE_REDIS_URL"])
stop = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stop.set())
stop.wait()
pathlib.Path("ended").touch()
"""


STUBBORN = """
import os, pathlib, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
pathlib.Path("new").write_text(str(os.getpid()))
os.rename("new", "beside")
while True:
    signal.pause()
"""


@pytest.mark.parametrize("reload", ["--reload", "--no-reload"])
def test_a_command_runs_beside_the_worker_and_ends_with_it(
    dev: Callable[..., Dev], tmp_path: Path, reload: str
) -> None:
    (tmp_path / "beside.py").write_text(BESIDE)
    started = dev(reload, "--with", f"{sys.executable} beside.py")
    started.wait_logged(", process ")
    assert started.ran("first") == "VERSION"
    wait_until(lambda: (tmp_path / "beside").exists() and (tmp_path / "beside").read_text())
    assert (tmp_path / "beside").read_text() == embedded.find(tmp_path)
    if reload == "--reload":
        (tmp_path / "beside").unlink()
        started.change("second")
        assert started.ran("third") == "second"
        assert not (tmp_path / "beside").exists()  # it was not started again
    else:
        before = children(started.process.pid)
        assert started.server() in before
        started.write("second")
        assert started.ran("third") == "VERSION"
        assert children(started.process.pid) == before
    assert "jobwire web" not in started.log
    assert started.log.count("jobwire dev: Valkey at") == 1
    assert started.end(signal.SIGTERM) == 0
    assert (tmp_path / "ended").exists()


def test_the_worker_outlives_a_command_beside_it(dev: Callable[..., Dev]) -> None:
    started = dev("--with", f"{sys.executable} -c 'exit(3)'")
    started.wait_logged("ended with exit status 3; the worker goes on")
    started.wait_logged(", process ")
    assert started.ran("first") == "VERSION"


def test_the_page_is_served_and_its_address_is_shown(dev: Callable[..., Dev]) -> None:
    # The port that pages prefer is taken, so that no page of another test has the address later.
    with ExitStack() as taken:
        with suppress(OSError):  # it is taken already
            taken.enter_context(socket.create_server(("127.0.0.1", 9928)))
        started = dev("--web")
        started.wait_logged("jobwire web: http://127.0.0.1:")
    started.wait_logged(", process ")
    address = re.search(r"jobwire web: (http://\S+)", started.log)
    assert address is not None
    assert httpx.get(address[1]).status_code == 200
    os.killpg(started.process.pid, signal.SIGINT)  # as a terminal does for Ctrl-C
    assert started.process.wait(60) == 0
    assert "the worker goes on" not in started.log
    with pytest.raises(httpx.ConnectError):
        httpx.get(address[1])


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("no-such-program x", "cannot run 'no-such-program': there is no such program"),
        ("", "no command; write --with"),
    ],
)
def test_a_command_that_cannot_run_is_refused(
    dev: Callable[..., Dev], command: str, says: str
) -> None:
    started = dev("--with", command)
    assert started.process.wait(60) == 2
    assert "--with: " in started.log
    assert says in started.log


def test_a_command_that_ignores_term_is_killed(dev: Callable[..., Dev], tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(STUBBORN)
    started = dev("--with", f"{sys.executable} beside.py")
    wait_until((tmp_path / "beside").exists, what=f"the command; {started.log}")
    assert started.end(signal.SIGTERM) == 0
    assert gone(int((tmp_path / "beside").read_text()))


def test_a_command_ends_also_after_a_kill(dev: Callable[..., Dev], tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text(BESIDE)
    started = dev("--with", f"{sys.executable} beside.py")
    wait_until(lambda: (tmp_path / "beside").exists() and (tmp_path / "beside").read_text())
    assert started.end(signal.SIGKILL) == -9
    wait_until(lambda: (tmp_path / "ended").exists())
