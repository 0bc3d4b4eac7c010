"""The commands that a server executes, including those of scripts, which no proxy can see."""

from __future__ import annotations

import re
import socket
import threading
from typing import NamedTuple

from jobwire_conformance.errors import EnvironmentFault
from jobwire_conformance.sandbox.processes import wait_for
from jobwire_conformance.wire.link import Link

__all__ = ["Executed", "Monitor"]

_LINE = re.compile(rb"\+[0-9.]+ \[[0-9]+ ([^\]]*)\] (.*)", re.DOTALL)
_WORD = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_NAMED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b"}
_REPORT_TIMEOUT_S = 10.0  # for the server to report a command that it has executed


class Executed(NamedTuple):
    """One command that the server executed."""

    by_script: bool
    words: list[bytes]


class Monitor:
    """A connection that records every command that a server executes.

    Args:
        host: Host of the server.
        port: Port of the server.

    Raises:
        EnvironmentFault: The server refuses MONITOR.
    """

    def __init__(self, host: str, port: int) -> None:
        self._lines: list[bytes] = []
        self._socket = socket.create_connection((host, port), 10)
        self._socket.sendall(b"MONITOR\r\n")
        self._file = self._socket.makefile("rb")
        if (first := self._file.readline()) != b"+OK\r\n":
            self._socket.close()
            raise EnvironmentFault(f"the suite's own Redis refused MONITOR: {first!r}")
        self._socket.settimeout(None)
        self._thread = threading.Thread(target=self._read, name="monitor", daemon=True)
        self._thread.start()

    def executed(self, link: Link) -> list[Executed]:
        """Return the commands that were executed until now.

        Args:
            link: A connection that sends a marker, which ends the list.
        """
        mark = f"jobwire-{id(link)}-{len(self._lines)}"
        link.call("ECHO", mark)
        seen = f'"ECHO" "{mark}"'.encode()
        if not wait_for(
            lambda: any(seen in line for line in self._lines[-500:]), _REPORT_TIMEOUT_S
        ):
            raise EnvironmentFault(
                f"the suite's own Redis sent no report to MONITOR for {_REPORT_TIMEOUT_S:g} s"
            )
        return [command for line in self._lines if (command := _parsed(line)) is not None]

    def close(self) -> None:
        """Close the connection."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._file.close()
        self._socket.close()

    def _read(self) -> None:
        for line in iter(self._file.readline, b""):
            self._lines.append(line)


def _parsed(line: bytes) -> Executed | None:
    match = _LINE.fullmatch(line.removesuffix(b"\r\n"))
    if match is None:
        return None
    words = [_ESCAPE.sub(_plain, word) for word in _WORD.findall(match[2])]
    return Executed(match[1] == b"lua", words)


def _plain(match: re.Match[bytes]) -> bytes:
    if match[1]:
        return bytes.fromhex(match[1].decode())
    return _NAMED.get(match[2], match[2])
