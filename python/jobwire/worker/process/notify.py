"""Telling how this process is to what started it: systemd, a supervising jobwire, or a file.

systemd's protocol is `NAME=value` lines in a datagram to the socket that NOTIFY_SOCKET names. The
processes of `--processes` say the same to their supervisor, over a stream that they inherit.
"""

from __future__ import annotations

import logging
import os
import socket
import time
from collections.abc import MutableMapping
from contextlib import suppress
from pathlib import Path

__all__ = ["SUPERVISOR", "Notifier"]

SUPERVISOR = "JOBWIRE_SUPERVISOR"  # set by it: the descriptor of the stream to it
READY_FILE = "JOBWIRE_READY_FILE"
PERIOD = 5.0  # seconds between two looks at what there is to tell
PATIENCE = 2.0  # seconds until a message that nobody takes is dropped

_log = logging.getLogger("jobwire.worker")


class Notifier:
    """What the environment says is to be told, and to whom.

    The variables are removed from the environment: what jobs start is not meant by them.

    Args:
        environ: The environment: NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID of systemd;
            JOBWIRE_READY_FILE, a file that exists as long as the process is ready, its time
            that of the last sign of life; or what a supervisor has set.

    Attributes:
        supervised: Whether a supervisor listens.
        watchdog: Seconds without a sign of life after which this process is killed, or None.
        period: Seconds between two signs of life; None if nobody wants one.
    """

    def __init__(self, environ: MutableMapping[str, str]) -> None:
        descriptor = environ.pop(SUPERVISOR, None)
        address = environ.pop("NOTIFY_SOCKET", None)
        usec = environ.pop("WATCHDOG_USEC", "")
        mine = environ.pop("WATCHDOG_PID", None) in (None, str(os.getpid()))
        file = environ.pop(READY_FILE, None)
        self.supervised = descriptor is not None
        self.watchdog = int(usec) / 1e6 if usec.isdigit() and int(usec) and mine else None
        self._file = Path(file) if file else None
        self._socket: socket.socket | None = None
        self._told: dict[str, str] = {}
        self._ready = False
        if descriptor is not None:
            self._socket = socket.socket(fileno=int(descriptor))
            self._socket.set_inheritable(False)
        elif address:
            self._socket = _connect(address)
        if self._socket is None and self._file is None:
            self.period = None
        else:
            self.period = min(PERIOD, self.watchdog / 2) if self.watchdog else PERIOD

    def ready(self, status: str) -> None:
        """Tell that it does its work, for the first time or again after `reloading`."""
        self._send(READY="1", STATUS=status)
        self._ready = True
        self._touch()

    def reloading(self, status: str) -> None:
        """Tell that it is being renewed; `ready` ends that."""
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send(RELOADING="1", MONOTONIC_USEC=str(now), STATUS=status)

    def alive(self) -> None:
        """Give a sign of life."""
        if self.watchdog:
            self._send(WATCHDOG="1")
        if self._ready:
            self._touch()

    def status(self, text: str, **details: int) -> None:
        """Tell what people may want to know, if it is news; `details` are for a supervisor."""
        fields = {"STATUS": text}
        fields |= {f"X_{name.upper()}": str(value) for name, value in details.items()}
        news = {name: value for name, value in fields.items() if self._told.get(name) != value}
        if news:
            self._send(**news)

    def stopping(self, status: str) -> None:
        """Tell that it will end."""
        self._send(STOPPING="1", STATUS=status)
        self._ready = False
        if self._file is not None:
            with suppress(OSError):
                self._file.unlink()

    def close(self) -> None:
        """Tell no more."""
        if self._socket is not None:
            self._socket.close()

    def wait_orphaned(self) -> None:
        """Return when the supervisor is gone."""
        if self._socket is not None:
            with suppress(OSError):
                while self._socket.recv(4096):
                    pass

    def _send(self, **fields: str) -> None:
        self._told |= fields
        if self._socket is None:
            return
        lines = [f"{name}={' '.join(value.split())}\n" for name, value in fields.items()]
        with suppress(OSError):  # who does not listen is not told
            # A supervisor that sleeps must not keep us; systemd's socket has a timeout.
            flags = socket.MSG_DONTWAIT if self.supervised else 0
            self._socket.sendall("".join(lines).encode(), flags)

    def _touch(self) -> None:
        if self._file is None:
            return
        try:
            self._file.touch()
        except OSError as error:
            _log.error("%s: %s; the file is given up", READY_FILE, error)
            self._file = None


def _connect(address: str) -> socket.socket | None:
    """Return a socket to where systemd listens: a path, or a name in the abstract namespace."""
    if address[0] not in "/@" or len(address) < 2:
        _log.warning("NOTIFY_SOCKET=%s is of no kind known here; nobody is notified", address)
        return None
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    channel.settimeout(PATIENCE)
    try:
        channel.connect("\0" + address[1:] if address[0] == "@" else address)
    except OSError as error:
        _log.warning("NOTIFY_SOCKET=%s: %s; nobody is notified", address, error)
        channel.close()
        return None
    return channel
