"""The suite's own connection to a Redis, without any conversion of bytes."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Any

import hiredis

from jobwire_conformance.errors import EnvironmentFault
from jobwire_conformance.wire.resp import command

__all__ = ["Link", "Refused"]

_INCOMPLETE = object()  # the reader returns it while a reply is incomplete


class Refused(EnvironmentFault):
    """The server answered a command with an error."""


class Link:
    """One connection, for one thread at a time.

    Args:
        port: Port of the server.
        timeout: Seconds to wait for a reply.
        host: Host of the server.
        greeting: Frame of the first command: AUTH, if the server needs a password.
        name: Name of the server in messages.
        tls: Whether to encrypt. The authorities that sign certificates are those of the system, or
            of the variable `SSL_CERT_FILE`.
    """

    def __init__(
        self,
        port: int,
        timeout: float = 10.0,
        *,
        host: str = "127.0.0.1",
        greeting: bytes = b"",
        name: str = "the suite's own Redis",
        tls: bool = False,
    ) -> None:
        self._name = name
        try:
            self._socket = socket.create_connection((host, port), timeout)
            if tls:
                import ssl

                context = ssl.create_default_context()
                self._socket = context.wrap_socket(self._socket, server_hostname=host)
        except OSError as error:
            raise EnvironmentFault(
                f"cannot connect to {name} at {host}:{port}: {error.strerror or error}"
            ) from None
        self._reader = hiredis.Reader(notEnoughData=_INCOMPLETE)
        if greeting:
            self._exchange([greeting], ["AUTH"])

    def call(self, *words: bytes | str | int | float) -> Any:
        """Return the reply to a command.

        Raises:
            Refused: The server refused the command.
            EnvironmentFault: It has gone.
        """
        return self.calls([words])[0]

    def calls(self, commands: list[tuple[bytes | str | int | float, ...]]) -> list[Any]:
        """Return the replies to commands that are sent together; see `call`."""
        frames = [command(*[_word(word) for word in words]) for words in commands]
        return self._exchange(frames, [str(words[0]) for words in commands])

    def _exchange(self, frames: Sequence[bytes], names: Sequence[str]) -> list[Any]:
        try:
            self._socket.sendall(b"".join(frames))
            replies = [self._read() for _ in frames]
        except OSError as error:
            raise EnvironmentFault(f"{self._name} does not answer: {error}") from None
        except hiredis.ProtocolError as error:
            raise EnvironmentFault(
                f"{self._name} does not speak the protocol of Redis: {error}"
            ) from None
        for reply, name in zip(replies, names, strict=True):
            if isinstance(reply, hiredis.ReplyError):
                raise Refused(f"{self._name} refused {name}: {reply}{_hint(str(reply))}")
        return replies

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _read(self) -> Any:
        while (reply := self._reader.gets()) is _INCOMPLETE:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionResetError("connection closed")
            self._reader.feed(data)
        return reply


def _word(word: bytes | str | int | float) -> bytes | str:
    return word if isinstance(word, bytes | str) else repr(word)


def _hint(refusal: str) -> str:
    if refusal.startswith("NOAUTH"):
        return "; put the password into the URL: redis://:PASSWORD@HOST:PORT"
    return ""
