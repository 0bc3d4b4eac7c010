"""The part of a program's output that tells why it ended."""

from __future__ import annotations

import re

__all__ = ["excerpt"]

_HEAD = 6  # lines; where most languages name the error
_TAIL = 8  # lines; where Python names it
_CAUSES = 4  # lines
_CAUSE = re.compile(r"\s*(?:Caused by\b|panic:|[\w.$:\\]*(?:Error|Exception)\b)")
_WIDTH = 500


def excerpt(text: str) -> str:
    """Return the first and the last lines, and lines between them that name an error; indented.

    A stack trace may be longer than a message should be. Some languages write the error before it,
    and others after it.
    """
    lines = text.splitlines()
    if not lines:
        return "    (no output)"
    middle = lines[_HEAD:-_TAIL]
    if not middle:
        return _indented(lines)
    causes = [line for line in middle if _CAUSE.match(line)][:_CAUSES]
    omitted = f"... {len(middle) - len(causes)} lines left out"
    return _indented([*lines[:_HEAD], omitted, *causes, *lines[-_TAIL:]])


def _indented(lines: list[str]) -> str:
    return "\n".join(f"    {line[:_WIDTH]}" for line in lines)
