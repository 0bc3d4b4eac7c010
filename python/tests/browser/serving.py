"""`jobwire web` as a process, and the options of the browser."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from harness.servers import Reaper
from tests.workers import environment

__all__ = ["OPTIONS", "serving"]

OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
STOP_S = 30


@contextmanager
def serving(reaper: Reaper, redis: str, *arguments: str, **variables: str) -> Iterator[str]:
    """Serve the page on a free port; yield its address without the slash at its end."""
    command = [sys.executable, "-m", "jobwire", "web", "--port", "0", "--redis", redis, *arguments]
    with subprocess.Popen(
        command, env=environment(**variables), stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        reaper.watch(process.pid)
        try:
            assert process.stderr is not None
            line = process.stderr.readline().decode()
            address = [word for word in line.split() if word.startswith("http://")]
            assert address, line + process.stderr.read().decode()
            yield address[0].rstrip("/")
        finally:
            process.terminate()
            process.wait(STOP_S)
            reaper.release(process.pid)
