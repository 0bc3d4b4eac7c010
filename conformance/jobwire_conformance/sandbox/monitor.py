"""What a server carries out, scripts included: the one thing that a proxy cannot see."""

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
_PATIENCE = 10.0  # seconds for the server to tell of what it has just done


class Executed(NamedTuple):
    """One command that the server carried out."""

    by_script: bool
    words: list[bytes]


class Monitor:
    """Listens to everything that a server carries out.

    Args:
        host: The server's.
        port: The server's.

    Raises:
        EnvironmentFault: The server does not let anybody listen.
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
        """Return what was carried out until now.

        Args:
            link: Says when now is.
        """
        mark = f"jobwire-{id(link)}-{len(self._lines)}"
        link.call("ECHO", mark)
        seen = f'"ECHO" "{mark}"'.encode()
        if not wait_for(lambda: any(seen in line for line in self._lines[-500:]), _PATIENCE):
            raise EnvironmentFault("the suite's own Redis does not tell what it does")
        return [found for line in self._lines if (found := _parsed(line)) is not None]

    def close(self) -> None:
        """Listen no more."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(10)
        self._file.close()
        self._socket.close()

    def _read(self) -> None:
        for line in iter(self._file.readline, b""):
            self._lines.append(line)


def _parsed(line: bytes) -> Executed | None:
    found = _LINE.fullmatch(line.removesuffix(b"\r\n"))
    if found is None:
        return None
    words = [_ESCAPE.sub(_plain, word) for word in _WORD.findall(found[2])]
    return Executed(found[1] == b"lua", words)


def _plain(found: re.Match[bytes]) -> bytes:
    if found[1]:
        return bytes.fromhex(found[1].decode())
    return _NAMED.get(found[2], found[2])
