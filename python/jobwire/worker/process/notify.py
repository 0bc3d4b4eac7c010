"""Reports the status of this process to systemd, the supervisor or a readiness file.

The protocol of systemd is `NAME=value` lines in a datagram to the socket that NOTIFY_SOCKET names.
The processes of `--processes` send the same lines to their supervisor, over an inherited stream,
and a line of JSON for its ports.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from jobwire.monitoring.figures import Figures

__all__ = ["REPORT_INTERVAL_S", "SHARD", "SUPERVISOR", "Notifier", "RedisPlace", "Report"]

SUPERVISOR = "JOBWIRE_SUPERVISOR"  # set by the supervisor: descriptor of the stream to it
SHARD = "JOBWIRE_SHARD"  # set by the supervisor: the shard that the process serves
READY_FILE = "JOBWIRE_READY_FILE"
STATUS_INTERVAL_S = 5.0  # between two reports of the status
REPORT_INTERVAL_S = 1.0  # between two reports of numbers to the supervisor
NOTIFY_TIMEOUT_S = 2.0  # after which a message that systemd does not accept is dropped

_log = logging.getLogger("jobwire.worker")


class RedisPlace(msgspec.Struct, frozen=True):
    """The place of the queues of a worker."""

    url: str
    namespace: str


class Report(msgspec.Struct, frozen=True):
    """The state of a worker process, for the ports of its supervisor.

    Attributes:
        figures: Its numbers.
        not_live: The reason that it must be restarted, or "".
        not_ready: The reason that it fetches no jobs, or "".
        redis: Where its queues are.
    """

    figures: Figures
    not_live: str
    not_ready: str
    redis: RedisPlace


class Notifier:
    """Sends the status to the receivers that the environment names.

    It removes the variables from the environment, so that programs that jobs start do not use
    them.

    Args:
        environ: The environment: NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID from systemd;
            JOBWIRE_READY_FILE, a file that exists while the process is ready and that is touched
            as long as the process works; or the variable of a supervisor.

    Attributes:
        supervised: True if a supervisor listens.
        watchdog: Seconds without a notification after which this process is killed, or None.
        period: Seconds between two notifications; None if there is no receiver.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        descriptor = environ.pop(SUPERVISOR, None)
        address = environ.pop("NOTIFY_SOCKET", None)
        usec = environ.pop("WATCHDOG_USEC", "")
        is_watched = environ.pop("WATCHDOG_PID", None) in (None, str(os.getpid()))
        file = environ.pop(READY_FILE, None)
        self.supervised = descriptor is not None
        self.watchdog = int(usec) / 1e6 if usec.isdigit() and int(usec) and is_watched else None
        self._file = Path(file) if file else None
        self._socket: socket.socket | None = None
        self._sent: dict[str, str] = {}
        self._ready = False
        if descriptor is not None:
            self._socket = socket.socket(fileno=int(descriptor))
            self._socket.set_inheritable(False)
        elif address:
            self._socket = _connect(address)
        if self._socket is None and self._file is None:
            self.period = None
        else:
            interval = STATUS_INTERVAL_S
            self.period = min(interval, self.watchdog / 2) if self.watchdog else interval

    def ready(self, status: str) -> None:
        """Report that the process is ready, for the first time or again after `reloading`."""
        self._send(READY="1", STATUS=status)
        self._ready = True
        self._touch()

    def reloading(self, status: str) -> None:
        """Report that the process restarts its workers; `ready` ends that state."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send(RELOADING="1", MONOTONIC_USEC=str(now), STATUS=status)

    def alive(self) -> None:
        """Report that the process works: notify the watchdog, touch the readiness file."""
        if self.watchdog:
            self._send(WATCHDOG="1")
        if self._ready:
            self._touch()

    def status(self, text: str, **details: int) -> None:
        """Report the status, if it has changed: `text` for people, `details` for a supervisor."""
        fields = {"STATUS": text}
        fields |= {f"X_{name.upper()}": str(value) for name, value in details.items()}
        changed = {name: value for name, value in fields.items() if self._sent.get(name) != value}
        if changed:
            self._send(**changed)

    def report(self, line: bytes) -> None:
        """Send the numbers of this process to its supervisor."""
        if self.supervised and self._socket is not None:
            # Too much text for the socket's buffer is cut off, and only this message is lost,
            # because the next one begins with the end of the line.
            with suppress(OSError):
                self._socket.sendall(b"\nX_REPORT=" + line + b"\n", socket.MSG_DONTWAIT)

    def shards(self, names: Sequence[str], epoch: int = 0) -> None:
        """Tell the supervisor that there must be processes for each of these shards.

        Args:
            names: The shards.
            epoch: Number of the last change of the shards; an older one has no effect.
        """
        line = f"{epoch} {' '.join(names)}"
        if self.supervised and names and self._sent.get("X_SHARDS") != line:
            self._send(X_SHARDS=line)

    def ticks(self, epoch: int) -> None:
        """Tell the supervisor which change of the shards the periodic jobs of this process know."""
        if self.supervised:
            self._send(X_TICKS=str(epoch))

    def stopping(self, status: str) -> None:
        """Report that the process stops."""
        self._send(STOPPING="1", STATUS=status)
        self._ready = False
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink()

    def close(self) -> None:
        """Stop reporting."""
        if self._socket is not None:
            self._socket.close()

    def wait_orphaned(self) -> None:
        """Return when the supervisor has ended."""
        if self._socket is not None:
            with suppress(OSError):
                while self._socket.recv(4096):
                    pass

    def _send(self, **fields: str) -> None:
        self._sent |= fields
        if self._socket is None:
            return
        lines = [f"{name}={' '.join(value.split())}\n" for name, value in fields.items()]
        with suppress(OSError):  # a receiver that does not listen misses the message
            # A supervisor that does not read must not block us; systemd's socket has a timeout.
            flags = socket.MSG_DONTWAIT if self.supervised else 0
            self._socket.sendall("".join(lines).encode(), flags)

    def _touch(self) -> None:
        if self._file is None:
            return
        try:
            self._file.touch()
        except OSError as error:
            _log.error("%s: %s; the file is no longer updated", READY_FILE, error)
            self._file = None


def _connect(address: str) -> socket.socket | None:
    """Return a socket to systemd's address: a path, or a name in the abstract namespace."""
    if address[0] not in "/@" or len(address) < 2:
        _log.warning("unsupported NOTIFY_SOCKET %s; systemd will not be notified", address)
        return None
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    channel.settimeout(NOTIFY_TIMEOUT_S)
    try:
        channel.connect("\0" + address[1:] if address[0] == "@" else address)
    except OSError as error:
        _log.warning("NOTIFY_SOCKET %s: %s; systemd will not be notified", address, error)
        channel.close()
        return None
    return channel
