"""Foreign text made safe to look at: payloads and replies may hold anything."""

from __future__ import annotations

import json
from collections.abc import Sequence

from jobwire_conformance.reports.results import TraceLine
from jobwire_conformance.wire.resp import Refusal, decode

__all__ = ["cell", "command", "one_line", "plain", "reply", "value", "visible"]

_KEPT = frozenset("\n\t")


def visible(text: str | bytes, limit: int = 2000) -> str:
    """Return a text in which everything can be seen.

    Control characters, bytes that are no UTF-8, halves of surrogate pairs and what turns the
    direction of writing become escapes; of a long text only the start is left.
    """
    if isinstance(text, bytes):
        # Four bytes a character at most: no need to decode a megabyte to show a line.
        more = len(text) - limit * 4
        text = text[: limit * 4].decode("utf-8", "backslashreplace")
        rest = max(more, 0) + max(len(text) - limit, 0)
    else:
        rest = max(len(text) - limit, 0)
    shown = "".join(c if c in _KEPT or c.isprintable() else _escape(c) for c in text[:limit])
    return f"{shown}… ({rest:,} more)" if rest else shown


def one_line(text: str | bytes, limit: int = 160) -> str:
    """Return the same without line breaks."""
    return visible(text, limit).replace("\n", "\\n").replace("\t", "\\t")


def plain(text: str) -> str:
    """Return a text without what XML cannot hold, and without more than is of use there."""
    return visible(text, 20_000)


def cell(text: str, limit: int = 400) -> str:
    """Return a text for a cell of a table in Markdown: it cannot end the cell, nor be a tag."""
    shown = one_line(text, limit).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    for character in "\\`*_[]|~":
        shown = shown.replace(character, f"\\{character}")
    return shown


def value(found: object) -> str:
    """Return what was expected or seen, as JSON over several lines."""
    return json.dumps(found, ensure_ascii=False, indent=2)


def command(words: Sequence[bytes], limit: int = 160) -> str:
    """Return a command in a line."""
    shown = [one_line(word, limit) or '""' for word in words[:12]]
    more = f" … {len(words) - 12} more" if len(words) > 12 else ""
    return " ".join(shown) + more


def reply(line: TraceLine, limit: int = 160) -> str:
    """Return the answer to a command in a line."""
    if line.reply is None:
        return "no reply"
    try:
        said = decode(line.reply)
    except (ValueError, IndexError):
        return one_line(line.reply, limit)
    if isinstance(said, Refusal):
        return one_line(said.message, limit)
    return one_line(_shown(said), limit)


def _shown(said: object) -> str:
    if isinstance(said, bytes):
        return visible(said)
    if isinstance(said, list):
        return f"[{', '.join(_shown(each) for each in said[:20])}]"
    return "nil" if said is None else str(said)


def _escape(character: str) -> str:
    number = ord(character)
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
