"""jobwire's worker for the interop tests: inside the test process, or a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import redis

from harness.servers import wait_until
from jobwire.application.config import CapsuleConfig, FetchMode, WorkerConfig, parse_queues
from jobwire.protocol.foreign import Feature, ForeignPolicy
from jobwire.worker import Launcher
from jobwire.worker.base.timings import DEFAULT_TIMINGS, Timings
from tests.interop.app import ReportingApp, make_app

PYTHON = Path(__file__).parents[2]  # the directory for sys.path

# Sidekiq without its commercial editions runs a job that has these fields like any other.
FOREIGN: Mapping[Feature, ForeignPolicy] = {"bid": "run", "expires_in": "run"}


@contextmanager
def worker_threads(
    url: str,
    *,
    app: ReportingApp | None = None,
    queues: Sequence[str] = ("default",),
    concurrency: int = 4,
    poll: float | None = None,
    fetch: FetchMode = "reliable",
    timings: Timings = DEFAULT_TIMINGS,
) -> Iterator[Launcher]:
    """Run a worker of `tests.interop.app` in this process; the worker is stopped normally.

    Args:
        url: The Redis.
        app: Another application.
        queues: Names, or "name,weight".
        concurrency: Jobs at a time.
        poll: Average seconds between two looks at `retry` and `schedule`, the first one within
            5 s; None is the default pace, with a first look after 10 to 15 s.
        fetch: Way of fetching.
        timings: Timings of its parts.
    """
    app = app or make_app()
    app.connect(url)
    capsule = CapsuleConfig(queues=parse_queues(queues), concurrency=concurrency)
    config = WorkerConfig(
        capsules={"default": capsule},
        poll_interval=poll,
        timeout=10,
        fetch=fetch,
        unknown_jobs="sidekiq",
        foreign=FOREIGN,
    )
    launcher = Launcher(app, config, timings=timings)
    launcher.start()
    try:
        yield launcher
    finally:
        launcher.stop()
        app.close()


class PythonWorker:
    """A running `jobwire worker` process, already registered in `processes`."""

    def __init__(self, popen: subprocess.Popen[bytes], log: Path, identity: str) -> None:
        self._popen = popen
        self._log = log
        self.pid = popen.pid
        self.identity = identity

    @property
    def running(self) -> bool:
        return self._popen.poll() is None

    def log(self) -> str:
        return self._log.read_text()

    def signal(self, number: signal.Signals) -> None:
        self._popen.send_signal(number)

    def wait(self, *, within: float = 40.0) -> int:
        """Wait for the end of the process; return its exit status."""
        return self._popen.wait(within)

    def stop(self, *, within: float = 40.0) -> int:
        """TERM and wait; return the exit status."""
        self.signal(signal.SIGTERM)
        return self.wait(within=within)


@contextmanager
def worker_process(
    url: str,
    *options: str,
    app: str = "tests.interop.app:app",
    env: Mapping[str, str] | None = None,
) -> Iterator[PythonWorker]:
    """Run `jobwire worker APP OPTIONS`; it is killed when the block ends."""
    # If the tests die, the kernel also ends this process.
    command = ["setpriv", "--pdeathsig", "KILL", sys.executable, "-m", "jobwire"]
    command += ["worker", app, "--redis", url, "--unknown-jobs", "sidekiq"]
    command += [word for one in FOREIGN.items() for word in ("--foreign", "=".join(one))]
    command += options
    with tempfile.TemporaryDirectory() as directory:
        log = Path(directory) / "log"
        with log.open("wb") as output:
            popen = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=directory,
                env={**os.environ, "PYTHONPATH": str(PYTHON), **(env or {})},
            )
        try:
            with redis.Redis.from_url(url) as client:

                def registered() -> str | None:
                    assert popen.poll() is None, f"jobwire did not start:\n{log.read_text()}"
                    members = cast("set[bytes]", client.smembers("processes"))
                    identities = (member.decode() for member in members)
                    return next((i for i in identities if i.split(":")[-2] == str(popen.pid)), None)

                identity = wait_until(registered, 30.0, "jobwire in `processes`")
            assert identity
            yield PythonWorker(popen, log, identity)
        finally:
            popen.kill()
            popen.wait()
