"""Foreign text made safe for people: payloads and replies may hold any bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence

from jobwire_conformance.reports.results import TraceLine
from jobwire_conformance.wire.resp import Refusal, decode

__all__ = ["cell", "command", "one_line", "plain", "reply", "value", "visible"]

_KEPT = frozenset("\n\t")


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


def plain(text: str) -> str:
    """Return a text for XML: without characters that XML cannot hold, and of limited length."""
    return visible(text, 20_000)


def cell(text: str, limit: int = 400) -> str:
    """Return a text for a cell of a table in Markdown. It can neither end the cell nor be a tag."""
    shown = one_line(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for character in "\\`*_[]|~":
        shown = shown.replace(character, f"\\{character}")
    return shown


def value(data: object) -> str:
    """Return an expected or a seen value as JSON on several lines."""
    return json.dumps(data, ensure_ascii=False, indent=2)


def command(words: Sequence[bytes], limit: int = 160) -> str:
    """Return a command on one line."""
    shown = [one_line(word, limit) or '""' for word in words[:12]]
    omitted = f" … {len(words) - 12} more" if len(words) > 12 else ""
    return " ".join(shown) + omitted


def reply(line: TraceLine, limit: int = 160) -> str:
    """Return the reply to a command on one line."""
    if line.reply is None:
        return "no reply"
    try:
        decoded = decode(line.reply)
    except (ValueError, IndexError):
        return one_line(line.reply, limit)
    if isinstance(decoded, Refusal):
        return one_line(decoded.message, limit)
    return one_line(_shown(decoded), limit)


def _shown(value_: object) -> str:
    if isinstance(value_, bytes):
        return visible(value_)
    if isinstance(value_, list):
        return f"[{', '.join(map(_shown, value_[:20]))}]"
    return "nil" if value_ is None else str(value_)


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
