"""Text for people: numbers with nouns, similar names, and escapes of unprintable characters.

Unprintable characters could control a terminal or deceive a reader: control characters, marks of
direction and of zero width, separators of lines and paragraphs, blanks other than the space, lone
surrogates, and code points without a character.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["counted", "did_you_mean", "visible", "visible_json"]

_UNUSUAL = re.compile(r"[^ -~]+")


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: `1 job`, `2,000 jobs`, `0 processes`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}{'es' if noun.endswith('s') else 's'}"


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return the closest known name, or "" if none is close."""
    from difflib import get_close_matches  # needed for mistakes only

    return next(iter(get_close_matches(name, known, n=1, cutoff=cutoff)), "")


def visible(text: str) -> str:
    r"""Return text as one line, with escapes like `\n` and `\u202e`. [SEC-5] [SEC-6]"""
    if text.isprintable():
        return text
    return _UNUSUAL.sub(lambda run: "".join(map(_escaped, run[0])), text)


def visible_json(line: str) -> str:
    """Return a JSON text of the same value, with escapes for all unprintable characters."""
    # Encoders escape the control characters below U+0020.
    if (line.isascii() and "\x7f" not in line) or line.isprintable():
        return line
    return _UNUSUAL.sub(lambda run: "".join(map(_escaped_for_json, run[0])), line)


def _escaped(char: str) -> str:
    return char if char.isprintable() else char.encode("unicode_escape").decode()


def _escaped_for_json(char: str) -> str:
    if char.isprintable():
        return char
    code = ord(char)
    if code < 0x10000:
        return f"\\u{code:04x}"
    code -= 0x10000
    return f"\\u{0xD800 + (code >> 10):04x}\\u{0xDC00 + (code & 0x3FF):04x}"
