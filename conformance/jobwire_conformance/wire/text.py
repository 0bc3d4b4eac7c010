"""Commands, replies and foreign text as text for people: one notation for all output."""

from __future__ import annotations

from collections.abc import Sequence

from jobwire_conformance.wire.resp import Refusal, decode

__all__ = ["command", "one_line", "reply", "visible"]

_KEPT = frozenset("\n\t")
_ITEMS = 20  # of an array in a reply


def visible(text: str | bytes, limit: int = 2000) -> str:
    """Return a text in which every character is visible.

    Control characters, bytes that are not UTF-8, halves of surrogate pairs and characters that
    change the direction of writing become escapes. Only the start of a long text is kept.
    """
    if isinstance(text, bytes):
        # A character has at most four bytes, so a long text need not be decoded as a whole.
        undecoded = max(len(text) - limit * 4, 0)
        text = text[: limit * 4].decode("utf-8", "backslashreplace")
        omitted = undecoded + max(len(text) - limit, 0)
    else:
        omitted = max(len(text) - limit, 0)
    shown = "".join(c if c in _KEPT or c.isprintable() else _escape(c) for c in text[:limit])
    return f"{shown}… ({omitted:,} more)" if omitted else shown


def one_line(text: str | bytes, limit: int = 160) -> str:
    """Return the text of `visible` without line breaks."""
    return visible(text, limit).replace("\n", "\\n").replace("\t", "\\t")


def command(words: Sequence[bytes], limit: int = 160, most: int = 12) -> str:
    """Return a command on one line.

    Args:
        words: Name and arguments.
        limit: Characters of each word to show.
        most: Words to show.
    """
    shown = [one_line(word, limit) or '""' for word in words[:most]]
    omitted = f" … {len(words) - most} more" if len(words) > most else ""
    return " ".join(shown) + omitted


def reply(frame: bytes | None, limit: int = 160) -> str:
    """Return a reply on one line: texts as they are, `nil`, `[a, b]`, `(error) ERR ...`."""
    if frame is None:
        return "no reply"
    try:
        decoded = decode(frame)
    except (ValueError, IndexError):
        return one_line(frame, limit)
    return one_line(_value(decoded), limit)


def _value(value: object) -> str:
    if isinstance(value, bytes):
        return visible(value) or '""'
    if isinstance(value, Refusal):
        return f"(error) {value.message}"
    if isinstance(value, list | tuple):
        omitted = f", … {len(value) - _ITEMS} more" if len(value) > _ITEMS else ""
        return f"[{', '.join(map(_value, value[:_ITEMS]))}{omitted}]"
    return "nil" if value is None else str(value)


def _escape(character: str) -> str:
    number = ord(character)
    if 0xDC80 <= number <= 0xDCFF:  # Python's stand-in for a byte that is not UTF-8
        number -= 0xDC00
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
