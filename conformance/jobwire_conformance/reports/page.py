"""The frame of an HTML page: one file, which loads no other file and runs only its own script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path

from jobwire_conformance.wire.text import one_line, visible

__all__ = ["cell", "facts", "inline", "page", "pill", "pre", "tag"]

_HERE = Path(__file__).parent


def page(title: str, body: Iterable[str], *, own: str = "page", wide: bool = False) -> str:
    """Return a whole page.

    Args:
        title: Title of the page, any text.
        body: HTML in which all foreign text is escaped.
        own: Name of the page's own script and, if it has one, of its own style.
        wide: True if the page uses the full width.
    """
    sheets = dict.fromkeys(["page.css", f"{own}.css"])
    style = "".join(p.read_text("utf-8") for name in sheets if (p := _HERE / name).exists())
    code = (_HERE / f"{own}.js").read_text("utf-8")
    # If foreign text ever became markup, the browser would still not run it.
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(code)}'"
    )
    lines = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        '<head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        '<link rel="icon" href="data:,">',
        f"<title>{inline(title)}</title>",
        f"<style>{style}</style></head>",
        '<body><a class="skip" href="#content">Skip to content</a>',
        f'<main id="content"{" class=wide" if wide else ""}>',
        *body,
        "</main>",
        f"<script>{code}</script>",
    ]
    return "\n".join([*lines, "</body></html>", ""])


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"


def inline(text: str | bytes, limit: int = 400) -> str:
    """Return foreign text as HTML on one line."""
    return escape(one_line(text, limit))


def pre(text: str, limit: int = 4000) -> str:
    """Return foreign text as a block that keeps its lines."""
    return f'<pre tabindex="0">{escape(visible(text, limit))}</pre>'


def tag(name: str, content: str, **attributes: str) -> str:
    """Return an element. `content` is HTML, attributes are any text, `class_` is `class`."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{inline(value, 2000)}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{content}</{name}>"


def pill(status: str, words: str | None = None) -> str:
    """Return a status as a coloured word."""
    return f'<span class="pill {_class(status)}">{inline(words or status)}</span>'


def cell(status: str, content: str, **attributes: str) -> str:
    """Return a cell in the colour of a status."""
    return tag("td", content, class_=_class(status), **attributes)


def _class(status: str) -> str:
    return f"s-{''.join(c for c in status if c.isalnum() or c == '-')}"


def facts(pairs: Mapping[str, str] | Sequence[tuple[str, str]]) -> str:
    """Return a list of names and values, both any text."""
    items = pairs.items() if isinstance(pairs, Mapping) else pairs
    inner = "".join(
        f"<div><dt>{inline(name)}</dt><dd>{inline(value)}</dd></div>" for name, value in items
    )
    return f'<dl class="facts">{inner}</dl>'
