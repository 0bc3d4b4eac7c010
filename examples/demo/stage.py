"""A server and a worker process in a directory of their own, all removed at the end."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NoReturn

from redis import Redis

from jobwire.connection import embedded

__all__ = ["DemoStage", "Interrupted", "WorkerFailed", "end_in_good_order", "open_stage"]

ROOT = Path(__file__).resolve().parents[2]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
START = 30.0  # seconds for the worker to start
STOP = 10.0  # seconds for it to stop; its jobs are short

_received: list[int] = []  # signals that ask for an end


class WorkerFailed(Exception):
    """The worker process ended or did not start."""


class Interrupted(SystemExit):
    """A signal, for example from Ctrl-C, ends the demo; `code` is the exit status."""


@dataclass(frozen=True, slots=True)
class DemoStage:
    """A running server and worker.

    Attributes:
        url: The server's URL.
        redis: A connection to it.
        product: Name and version of the server: `Valkey 9.1.2`.
        worker: The worker process.
        log: The file with the worker's output.
    """

    url: str
    redis: Redis
    product: str
    worker: subprocess.Popen[bytes]
    log: Path

    def check_worker(self) -> None:
        """Raise if the worker has ended, or if a signal asks the demo to end."""
        if _received:
            raise Interrupted(128 + _received[0])
        if self.worker.poll() is not None:
            raise WorkerFailed(f"the worker ended with status {self.worker.returncode}")

    def wait_for_worker(self) -> None:
        """Wait until the worker has registered itself."""
        deadline = time.monotonic() + START
        while not self.redis.scard("processes"):
            self.check_worker()
            if time.monotonic() > deadline:
                raise WorkerFailed(f"the worker did not start within {START:g} s")
            time.sleep(0.02)

    def stop_worker(self) -> int:
        """Stop the worker as a service manager does; return its exit status."""
        self.worker.send_signal(signal.SIGTERM)
        try:
            return self.worker.wait(STOP)
        except subprocess.TimeoutExpired:
            raise WorkerFailed(f"the worker did not stop within {STOP:g} s") from None


@contextmanager
def open_stage(app: str, queues: Sequence[str]) -> Iterator[DemoStage]:
    """Start a server and a worker; at the end, stop both.

    Args:
        app: The application, as `jobwire worker` takes it.
        queues: The queues to serve, all with the same weight.
    """
    with ExitStack() as undo:
        directory = Path(undo.enter_context(TemporaryDirectory(prefix="jobwire-demo-")))
        server = undo.enter_context(embedded.start(directory))
        redis = undo.enter_context(Redis.from_url(server.url))
        log = directory / "worker.log"
        command = [sys.executable, "-m", "jobwire", "worker", app, "--redis", server.url]
        command += ["--poll-interval", "0.5", "--concurrency", "10", "--timeout", "2"]
        # The recorded payloads have every field, and no worker of another product is here.
        command += ["--foreign", "bid=run", "--foreign", "expires_in=run"]
        command += [word for queue in queues for word in ("--queue", f"{queue},1")]
        with log.open("wb") as output:
            worker = subprocess.Popen(
                command,
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the demo, which then stops the worker
            )
        undo.callback(_end, worker)
        undo.callback(_ignore_signals)  # called first, so that nothing interrupts the others
        info = redis.info("server")
        product = str(info.get("server_name", "redis")).capitalize()
        version = info.get("valkey_version", info.get("redis_version"))
        yield DemoStage(server.url, redis, f"{product} {version}", worker, log)


def end_in_good_order() -> None:
    """Have the signals that ask for an end raise `Interrupted`, so that everything is undone.

    Python drops an error that a handler raises inside a finalizer, and prints a traceback.
    Therefore the signal is also recorded, and the traceback is suppressed.
    """
    report = sys.unraisablehook

    def unraisable(what: sys.UnraisableHookArgs, /) -> None:
        if not isinstance(what.exc_value, Interrupted):
            report(what)

    sys.unraisablehook = unraisable

    def leave(number: int, frame: object) -> NoReturn:
        _ignore_signals()  # a second signal would disturb the cleanup
        _received.append(number)
        raise Interrupted(128 + number)

    for number in SIGNALS:
        if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # nohup
            signal.signal(number, leave)


def _ignore_signals() -> None:
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def _end(worker: subprocess.Popen[bytes]) -> None:
    for stop in (worker.terminate, worker.kill):
        if worker.poll() is not None:
            return
        stop()
        try:
            worker.wait(STOP)
        except subprocess.TimeoutExpired:
            continue
