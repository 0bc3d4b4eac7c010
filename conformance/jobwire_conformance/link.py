"""The suite's own connection to a Redis: exact bytes in, exact bytes out."""

from __future__ import annotations

import socket
from collections import deque
from typing import Any

from jobwire_conformance.errors import EnvironmentFault
from jobwire_conformance.resp import Refusal, Splitter, command, decode

__all__ = ["Link"]


class Link:
    """One connection, for one thread at a time.

    Args:
        port: Of a server on 127.0.0.1.
        timeout: Seconds to wait for a reply.
    """

    def __init__(self, port: int, timeout: float = 10.0) -> None:
        try:
            self._socket = socket.create_connection(("127.0.0.1", port), timeout)
        except OSError as error:
            raise EnvironmentFault(f"the suite's own Redis on port {port}: {error}") from None
        self._splitter = Splitter()
        self._frames: deque[bytes] = deque()

    def call(self, *words: bytes | str | int | float) -> Any:
        """Return what a command is answered with.

        Raises:
            EnvironmentFault: The server refused, or is gone.
        """
        return self.calls([words])[0]

    def calls(self, commands: list[tuple[bytes | str | int | float, ...]]) -> list[Any]:
        """Return the replies to commands that are sent together; see `call`."""
        frames = [command(*[_word(word) for word in words]) for words in commands]
        try:
            self._socket.sendall(b"".join(frames))
            replies = [self._read() for _ in commands]
        except OSError as error:
            raise EnvironmentFault(f"the suite's own Redis does not answer: {error}") from None
        for reply, words in zip(replies, commands, strict=True):
            if isinstance(reply, Refusal):
                raise EnvironmentFault(
                    f"the suite's own Redis refused {words[0]!r}: {reply.message}"
                )
        return replies

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _read(self) -> Any:
        while not self._frames:
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionResetError("connection closed")
            self._frames += self._splitter.feed(data)
        return decode(self._frames.popleft())


def _word(word: bytes | str | int | float) -> bytes | str:
    return word if isinstance(word, bytes | str) else repr(word)
