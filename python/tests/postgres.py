"""A PostgreSQL server of a test, from the programs of the system."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from harness.servers import Reaper

_PLACES = ["/usr/lib/postgresql/*/bin", "/usr/local/bin", "/opt/homebrew/bin"]
USER = "postgres"


def _program(name: str) -> str | None:
    found = [
        str(path) for place in _PLACES for path in sorted(Path("/").glob(f"{place[1:]}/{name}"))
    ]
    return shutil.which(name) or (found[-1] if found else None)


def missing() -> str | None:
    """Return what a server lacks; None if it can run."""
    if find_spec("psycopg") is None:
        return "no psycopg"
    if _program("initdb") is None or _program("postgres") is None:
        return "no PostgreSQL server: apt-get install postgresql"
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        return "PostgreSQL does not run as root, and there is no setpriv"
    return None


def _as_user(*words: str) -> list[str]:
    """Return a command that does not run as root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return [*words]
    user = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
    return [*user, *words]


class Postgres:
    """A server on a socket in a directory of its own, without a port."""

    def __init__(self, directory: Path, reaper: Reaper) -> None:
        self.socket = directory
        self._reaper = reaper
        self._data = directory / "data"
        self._log = directory / "log"
        self._process: subprocess.Popen[bytes] | None = None
        initdb, postgres = _program("initdb"), _program("postgres")
        assert initdb is not None
        assert postgres is not None
        self._postgres = postgres
        subprocess.run(
            _as_user(initdb, "-D", str(self._data), "-U", USER, "-A", "trust", "--no-sync"),
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=directory,
        )

    def start(self) -> None:
        """Start, and wait until it answers."""
        options = ["-D", str(self._data), "-k", str(self.socket), "-c", "listen_addresses="]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                _as_user(self._postgres, *options, "-F"), stdout=log, stderr=log, cwd=self.socket
            )
        self._reaper.watch(self._process.pid)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.execute("postgres", "select 1")
                return
            except OSError:
                assert time.monotonic() < deadline, self._log.read_text()
                time.sleep(0.05)

    def kill(self) -> None:
        """End at once, and all its connections."""
        assert self._process is not None
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(60)
        self._reaper.release(self._process.pid)

    def execute(self, database: str, statement: str) -> list[tuple[object, ...]]:
        """Run a statement, and return its rows.

        Raises:
            OSError: The server does not answer.
        """
        import psycopg

        where = f"host={self.socket} user={USER} dbname={database}"
        try:
            with psycopg.connect(where, autocommit=True) as connection:
                cursor = connection.execute(statement.encode())
                return cursor.fetchall() if cursor.description else []
        except psycopg.OperationalError as error:
            raise OSError(str(error)) from None


@contextmanager
def running(reaper: Reaper, databases: Sequence[str]) -> Iterator[Postgres]:
    """Run a server with some empty databases."""
    directory = (
        Path("/tmp") / f"jobwire-pg-{os.getpid()}-{time.monotonic_ns()}"
    )  # short for a socket
    directory.mkdir()
    if os.geteuid() == 0:
        shutil.chown(directory, USER, USER)
    try:
        server = Postgres(directory, reaper)
        server.start()
        try:
            for name in databases:
                server.execute("postgres", f"create database {name}")
            yield server
        finally:
            server.kill()
    finally:
        shutil.rmtree(directory)


def numbers(socket: str, databases: Sequence[str]) -> set[int]:
    """Return the numbers of all orders."""
    import psycopg

    found: set[int] = set()
    for name in databases:
        with psycopg.connect(f"host={socket} user={USER} dbname={name}") as connection:
            found.update(row[0] for row in connection.execute("select number from orders_order"))
    return found
