"""RESP2 and RESP3 as bytes: the end of a frame, and its value. No socket.

A proxy must forward frames that it does not understand. Therefore frames are cut, stored and
forwarded as bytes, and decoded only for code that reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    *("ProtocolError", "Refusal", "Splitter"),
    *("altered", "arguments", "command", "decode", "error"),
]

_LEAVES = frozenset(b"+-:_#,(")
_STRINGS = frozenset(b"$=!;")
_WIDTH = {ord("*"): 1, ord("~"): 1, ord(">"): 1, ord("%"): 2, ord("|"): 2}  # of aggregates
_ATTRIBUTE = ord("|")
_CHUNK = ord(";")
_END = ord(".")
_OPEN_END = -1  # the length of an aggregate that an end mark closes


class ProtocolError(ValueError):
    """The bytes are not RESP."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """An error reply with its whole text: `WRONGTYPE Operation against ...`."""

    message: str


class Splitter:
    """Cuts a stream of bytes into whole frames. The stream may arrive in parts of any size.

    Args:
        inline: True if a line that is not RESP is also a frame: a command typed by a person.
    """

    def __init__(self, *, inline: bool = False) -> None:
        self._inline = inline
        self._buffer = bytearray()
        self._at = 0  # all bytes before this offset are parsed
        # For each aggregate around `_at`: the number of values still to come, and True if the
        # aggregate is itself a value (an attribute is not).
        self._around: list[tuple[int, bool]] = []

    @property
    def incomplete(self) -> bytes:
        """The bytes that do not form a whole frame yet."""
        return bytes(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """Return the frames that these bytes complete.

        Raises:
            ProtocolError: The bytes are not RESP.
        """
        self._buffer += data
        frames: list[bytes] = []
        start = 0
        while self._finish():
            frames.append(bytes(self._buffer[start : self._at]))
            start = self._at
        if start:
            del self._buffer[:start]
            self._at -= start
        return frames

    def _finish(self) -> bool:
        """Parse up to the end of the frame; return whether the frame is complete."""
        buffer = self._buffer
        while self._at < len(buffer):
            kind = buffer[self._at]
            inline = self._inline and not self._around and kind != ord("*")
            end = buffer.find(b"\n" if inline else b"\r\n", self._at)
            if end < 0:
                return False
            if inline:
                self._at = end + 1
                return True
            size = bytes(buffer[self._at + 1 : end])
            after = end + 2
            if kind in _STRINGS and size != b"?":
                length = _number(size)
                if length > 0 or (length == 0 and kind != _CHUNK):
                    after += length + 2
                    if after > len(buffer):
                        return False
                    if buffer[after - 2 : after] != b"\r\n":
                        raise ProtocolError(f"no end of line after a string of {length} bytes")
            whole = self._element(kind, size)
            self._at = after
            if whole:
                return True
        return False

    def _element(self, kind: int, size: bytes) -> bool:
        """Account for one element; return whether it ends the frame."""
        if kind in (_END, _CHUNK):
            if not self._around or self._around[-1][0] != _OPEN_END:
                raise ProtocolError(f"{chr(kind)!r} outside a string or array of unknown length")
            if kind == _CHUNK and _number(size) > 0:
                return False
            return self._close()
        if kind in _LEAVES:
            return self._value()
        if kind in _STRINGS:
            if size != b"?":
                return self._value()
            self._around.append((_OPEN_END, True))
            return False
        if kind not in _WIDTH:
            raise ProtocolError(f"{chr(kind)!r} is not the first byte of a RESP type")
        is_value = kind != _ATTRIBUTE
        count = _OPEN_END if size == b"?" else _number(size) * _WIDTH[kind]
        if count > 0 or size == b"?":
            self._around.append((count, is_value))
            return False
        return is_value and self._value()

    def _value(self) -> bool:
        """Account for one complete value; return whether it completes the frame."""
        if not self._around:
            return True
        left, is_value = self._around[-1]
        if left == _OPEN_END:
            return False
        if left > 1:
            self._around[-1] = (left - 1, is_value)
            return False
        return self._close()

    def _close(self) -> bool:
        _, is_value = self._around.pop()
        return is_value and self._value()  # after an attribute, its value is still to come


def decode(frame: bytes) -> Any:
    """Return the value of a whole frame.

    Strings are bytes, and errors are `Refusal`. Maps are lists of pairs, because their keys can be
    lists. Sets and pushes are lists. Attributes are left out.
    """
    value, _ = _read(frame, 0)
    return value


def arguments(frame: bytes) -> list[bytes]:
    """Return the words of a command."""
    if not frame.startswith(b"*"):
        return frame.split()
    words = decode(frame)
    if not isinstance(words, list) or not all(isinstance(word, bytes) for word in words):
        raise ProtocolError(f"not a command: {frame[:100]!r}")
    return words


def command(*words: bytes | str) -> bytes:
    """Return the frame of a command."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        text = word.encode() if isinstance(word, str) else word
        parts.append(b"$%d\r\n%s\r\n" % (len(text), text))
    return b"".join(parts)


def altered(frame: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """Return a whole frame in which `change` has replaced every string and every error.

    Strings that come in chunks stay unchanged.
    """
    parts = []
    at = 0
    while at < len(frame):
        end = frame.index(b"\r\n", at)
        kind, text = frame[at : at + 1], frame[at + 1 : end]
        at = end + 2
        if kind in (b"+", b"-"):
            parts.append(b"%s%s\r\n" % (kind, change(text)))
        elif kind in (b"$", b"=") and text.isdigit():
            string = change(frame[at : at + int(text)])
            parts.append(b"%s%d\r\n%s\r\n" % (kind, len(string), string))
            at += int(text) + 2
        else:
            parts.append(b"%s%s\r\n" % (kind, text))
    return b"".join(parts)


def error(message: str) -> bytes:
    """Return the frame of an error reply, like `READONLY You can't write against a replica.`"""
    return f"-{message}\r\n".encode()


def _number(text: bytes) -> int:
    try:
        return int(text)
    except ValueError:
        raise ProtocolError(f"{text[:100]!r} is not a length") from None


def _read(frame: bytes, at: int) -> tuple[Any, int]:
    """Return the value that begins at `at`, and the offset of its end."""
    end = frame.index(b"\r\n", at)
    kind, text = chr(frame[at]), frame[at + 1 : end]
    after = end + 2
    if kind == "|":
        _, after = _read_many(frame, after, text, width=2)
        return _read(frame, after)
    if kind in "*~>%":
        if text == b"-1":
            return None, after
        values, after = _read_many(frame, after, text, width=2 if kind == "%" else 1)
        if kind == "%":
            return list(zip(values[::2], values[1::2], strict=True)), after
        return values, after
    if kind in "$=!":
        string, after = _read_string(frame, after, text)
        if kind == "!" and string is not None:
            return Refusal(string.decode("utf-8", "replace")), after
        return string[4:] if kind == "=" and string is not None else string, after
    match kind:
        case "+":
            return text, after
        case "-":
            return Refusal(text.decode("utf-8", "replace")), after
        case ":" | "(":
            return int(text), after
        case "_":
            return None, after
        case "#":
            return text == b"t", after
        case ",":
            return float(text), after
    raise ProtocolError(f"{kind!r} is not the first byte of a RESP type")


def _read_many(frame: bytes, at: int, size: bytes, *, width: int) -> tuple[Sequence[Any], int]:
    values = []
    if size == b"?":
        while not frame.startswith(b".\r\n", at):
            value, at = _read(frame, at)
            values.append(value)
        return values, at + 3
    for _ in range(int(size) * width):
        value, at = _read(frame, at)
        values.append(value)
    return values, at


def _read_string(frame: bytes, at: int, size: bytes) -> tuple[bytes | None, int]:
    if size == b"?":
        chunks: list[bytes] = []
        while True:
            end = frame.index(b"\r\n", at)
            length = int(frame[at + 1 : end])
            at = end + 2
            if length == 0:
                return b"".join(chunks), at
            chunks.append(frame[at : at + length])
            at += length + 2
    length = int(size)
    if length < 0:
        return None, at
    return frame[at : at + length], at + length + 2
