"""Foreign text made safe for the formats of reports: payloads and replies may hold any bytes."""

from __future__ import annotations

import json

from jobwire_conformance.wire.text import one_line, visible

__all__ = ["cell", "plain", "value"]


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
