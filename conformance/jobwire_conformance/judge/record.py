"""One command and its reply, as input of the judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobwire_conformance.wire.resp import ProtocolError, Refusal, decode

__all__ = ["Record", "decoded"]

_SHOWN = 72  # characters of a word in a finding


@dataclass(frozen=True, slots=True)
class Record:
    """One command and its reply.

    Attributes:
        sequence: Number of the command in the order of arrival, from 1.
        connection: Number of the connection, from 1.
        words: Name and arguments.
        at: Time of the reply, Unix seconds.
        reply: The decoded reply; `Refusal` for an error; None also if no reply came.
        seconds: Time until the reply, or until the connection ended.
        answered: True if a reply came.
        received: False if it is known that the process did not get this reply.
        process: Name of the process that sent it; None if unknown.
    """

    sequence: int
    connection: int
    words: Sequence[bytes]
    at: float
    reply: Any = None
    seconds: float = 0.0
    answered: bool = True
    received: bool = True
    process: str | None = None

    @property
    def name(self) -> str:
        """The command's name, in capitals."""
        return self.words[0].decode("utf-8", "replace").upper() if self.words else ""

    @property
    def sent(self) -> float:
        """Time of arrival, Unix seconds."""
        return self.at - self.seconds

    @property
    def worked(self) -> bool:
        """True if the server executed it."""
        return self.answered and not isinstance(self.reply, Refusal)

    def wire(self) -> list[str]:
        """Return the first six words for people, with long words shortened."""
        words = [_short(word) for word in self.words[:6]]
        if (left := len(self.words) - 6) > 0:
            words[-1] += f" ... {left} more"
        return words


def decoded(frame: bytes | None) -> Any:
    """Return the value of a reply; None if it cannot be decoded."""
    if frame is None:
        return None
    try:
        return decode(frame)
    except (ProtocolError, ValueError, IndexError, RecursionError):
        return None


def _short(word: bytes) -> str:
    text = word[: 4 * _SHOWN].decode("utf-8", "backslashreplace")
    return text if len(text) <= _SHOWN and len(word) <= 4 * _SHOWN else text[: _SHOWN - 3] + "..."
