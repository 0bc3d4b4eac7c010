"""One command and its answer, as a judge sees them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from jobwire_conformance.wire.resp import ProtocolError, Refusal, decode

__all__ = ["Record", "decoded"]

_SHOWN = 72  # characters of a word in a finding


@dataclass(frozen=True, slots=True)
class Record:
    """One command and its answer.

    Attributes:
        sequence: Counted from 1 in the order in which commands came.
        connection: Counted from 1.
        words: The command.
        at: When it was over, Unix seconds.
        reply: What the server answered, decoded; `Refusal` for an error; None also where no answer
            came.
        seconds: How long the answer took, or until the connection was given up.
        answered: Whether an answer came.
        process: Who sent it, where that is known.
    """

    sequence: int
    connection: int
    words: Sequence[bytes]
    at: float
    reply: Any = None
    seconds: float = 0.0
    answered: bool = True
    process: str | None = None

    @property
    def name(self) -> str:
        """The command's name, in capitals."""
        return self.words[0].decode("utf-8", "replace").upper() if self.words else ""

    @property
    def sent(self) -> float:
        """When it came, Unix seconds."""
        return self.at - self.seconds

    @property
    def worked(self) -> bool:
        """Whether the server did not refuse it."""
        return self.answered and not isinstance(self.reply, Refusal)

    def wire(self) -> list[str]:
        """Return the first six words, for people: long ones shortened."""
        words = [_short(word) for word in self.words[:6]]
        if (left := len(self.words) - 6) > 0:
            words[-1] += f" ... {left} more"
        return words


def decoded(frame: bytes | None) -> Any:
    """Return what an answer says; None if that cannot be told."""
    if frame is None:
        return None
    try:
        return decode(frame)
    except (ProtocolError, ValueError, IndexError, RecursionError):
        return None


def _short(word: bytes) -> str:
    text = word[: 4 * _SHOWN].decode("utf-8", "backslashreplace")
    return text if len(text) <= _SHOWN and len(word) <= 4 * _SHOWN else text[: _SHOWN - 3] + "..."
