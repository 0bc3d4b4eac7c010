"""Workers for tests, inside the test process or as separate processes."""

from __future__ import annotations

import json
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import redis

from harness.servers import Reaper, Server, clean_environment, wait_until
from jobwire import App
from jobwire.application.config import CapsuleConfig, WorkerConfig
from jobwire.worker import Launcher
from jobwire.worker.base.timings import Timings
from tests import forking

PYTHON = Path(__file__).resolve().parents[1]


def free_port() -> int:
    """Return a free port below those that the system chooses, which the servers of tests use."""
    while True:
        port = random.SystemRandom().randrange(
            10_000, 20_000
        )  # unlike others, not seeded by Hypothesis
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def brisk(**seconds: Any) -> Timings:
    """Return timings with which an idle worker stops soon, changed by the arguments."""
    return Timings(**{"stop_check_interval": 0.02, "brpop_timeout": 0.1, **seconds})


class Gate:
    """A job `Take` that reports its start and waits for the test."""

    def __init__(self) -> None:
        self.app = App()
        self.entered: list[Any] = []
        self.open = threading.Event()
        self.app.job(name="Take")(self._run)

    def _run(self, arg: Any) -> None:
        self.entered.append(arg)
        while not self.open.wait(0.01):  # in steps, so that an interruption can arrive
            pass
        if arg == "fails":
            raise ValueError


@contextmanager
def running(
    app: App,
    server: Server,
    *,
    queues: Mapping[str, int] | None = None,
    concurrency: int = 2,
    signals: list[str] | None = None,
    timings: Timings | None = None,
    **settings: Any,
) -> Iterator[Launcher]:
    """Run a worker in this process; it is stopped at the end.

    Args:
        app: Its jobs.
        server: Its Redis.
        queues: The queues of its only capsule.
        concurrency: The concurrency of its only capsule.
        signals: Receives the signals that are sent through Redis, instead of the worker.
        timings: Timings of its parts, instead of `brisk()`.
        **settings: Other fields of `WorkerConfig`.
    """
    app.connect(server.url)
    capsule = CapsuleConfig(queues=queues or {"default": 0}, concurrency=concurrency)
    settings = {"capsules": {"default": capsule}, "timeout": 5.0, **settings}
    launcher = Launcher(
        app,
        WorkerConfig(**settings),
        on_signal=None if signals is None else signals.append,
        timings=timings or brisk(),
    )
    launcher.start()
    try:
        yield launcher
    finally:
        launcher.stop()
        app.close()


@contextmanager
def heeding_hup() -> Iterator[None]:
    """Let the processes that start meanwhile heed HUP, which tests under nohup ignore."""
    inherited = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, inherited)


def environment(**more: str) -> dict[str, str]:
    """Return the environment for `python -m jobwire`, without this process's Redis settings."""
    return clean_environment(**{"PYTHONPATH": str(PYTHON), **more})


def jobwire(
    *arguments: str, cwd: Path | None = None, **env: str
) -> subprocess.CompletedProcess[str]:
    """Run a command and wait for its end."""
    if "worker" in arguments[:1]:  # starts processes of its own, which a forked one cannot do
        return subprocess.run(
            [sys.executable, "-m", "jobwire", *arguments],
            cwd=cwd,
            env=environment(**env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    return forking.run(
        *arguments, cwd=cwd or Path.cwd(), environment=environment(**env), timeout=600
    )


class WorkerProcess:
    """`jobwire worker` as a process; its log is in a file, as JSON if the log format is given."""

    def __init__(
        self,
        reaper: Reaper,
        log: Path,
        app: str,
        *arguments: str,
        cwd: Path,
        command: str,
        log_format: str | None,
    ) -> None:
        self.log = log
        self._reaper = reaper
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "jobwire", command, app),
                    *(() if log_format is None else ("--log-format", log_format)),
                    *arguments,
                ],
                cwd=cwd,
                env=environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=output,
            )
        reaper.watch(self.process.pid)

    def identity(self, client: redis.Redis) -> str:
        """Wait until the worker has registered; return its identity."""

        def find() -> str | None:
            assert self.process.poll() is None, self.log.read_text()
            members: Any = client.smembers("processes")
            names = [member.decode() for member in members]
            pid = str(self.process.pid)
            return next((name for name in names if name.split(":")[-2] == pid), None)

        return wait_until(find, what=f"the worker to register; {self.log.read_text()}") or ""

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self.process.kill()
        self.process.wait(60)

    def wait(self, timeout: float = 60) -> int:
        """Wait for the process to end; return its exit status."""
        try:
            return self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running:\n{self.log.read_text()}") from None

    def lines(self) -> list[dict[str, Any]]:
        """Return the complete lines of the log; fail if one is not JSON."""
        text = self.log.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def logged(self, words: str) -> list[dict[str, Any]]:
        """Return the lines whose message contains the words."""
        return [line for line in self.lines() if words in line["msg"]]

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()
        self._reaper.release(self.process.pid)


class Workers:
    """Starts worker processes and leaves none behind."""

    def __init__(self, reaper: Reaper, directory: Path) -> None:
        self._reaper = reaper
        self._directory = directory
        self._count = 0
        self._running = ExitStack()

    def start(
        self,
        app: str,
        *arguments: str,
        command: str = "worker",
        log_format: str | None = "json",
    ) -> WorkerProcess:
        """Start a worker in the test's directory; another one may still run."""
        self._count += 1
        log = self._directory / f"worker-{self._count}.log"
        started = WorkerProcess(
            self._reaper,
            log,
            app,
            *arguments,
            cwd=self._directory,
            command=command,
            log_format=log_format,
        )
        self._running.callback(started.close)
        return started

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()
