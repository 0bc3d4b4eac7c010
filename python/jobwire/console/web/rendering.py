"""Templates, and the forms in which they show values."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from jobwire.inspect.formats import iso
from jobwire.inspect.reading import text
from jobwire.text import counted, visible

__all__ = ["Pages"]

MINUTE_S, HOUR_S, DAY_S = 60, 3600, 86_400


class Pages:
    """The templates. Every value is escaped."""

    def __init__(self) -> None:
        self._environment = Environment(
            loader=PackageLoader("jobwire.console.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.filters |= {
            "counted": counted,
            "duration": duration,
            "iso": iso,
            "number": number,
            "seen": seen,
            "moment": moment,
        }
        self._environment.globals |= {"asset": asset}
        # For every template, and for blocks that are rendered alone.
        self._environment.globals["macros"] = self._environment.get_template("macros.html").module

    def page(self, name: str, values: Mapping[str, Any]) -> str:
        """Return a page."""
        return self._environment.get_template(name).render(values)

    def block(self, name: str, block: str, values: Mapping[str, Any]) -> str:
        """Return one block of a page."""
        template = self._environment.get_template(name)
        return "".join(template.blocks[block](template.new_context(dict(values))))

    def has_block(self, name: str, block: str) -> bool:
        """Return True if a template itself defines a block."""
        return block in self._environment.get_template(name).blocks


def seen(value: object) -> str:
    """Return a name from Redis as text that cannot deceive: escapes for invisible characters."""
    return visible(text(value) if isinstance(value, bytes | str) else str(value))


def number(value: float) -> str:
    """Return a number with separators between thousands."""
    return f"{value:,.0f}" if isinstance(value, int) or value == int(value) else f"{value:,.2f}"


def duration(seconds: float | None) -> str:
    """Return seconds in the two largest units, such as `3 h 20 min`; a dash for None."""
    if seconds is None:
        return "-"
    sign, left = ("-" if seconds < 0 else ""), abs(seconds)
    if left < 1:
        return f"{sign}{left * 1000:.0f} ms" if left else "0 s"
    if left < 10:
        return f"{sign}{left:.1f} s"
    parts: list[str] = []
    for unit, length in (("d", DAY_S), ("h", HOUR_S), ("min", MINUTE_S), ("s", 1)):
        if left >= length or parts:
            count, left = divmod(left, length)
            parts.append(f"{count:.0f} {unit}" if count else "")
        if len(parts) == 2:
            break
    return sign + " ".join(filter(None, parts))


def moment(at: float | None, now: float) -> Markup:
    """Return a time relative to now, with its date for machines and as a tooltip."""
    if at is None:
        return Markup("-")
    try:
        date = datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        return escape(f"{at!r} s")
    away = now - at
    words = "now" if abs(away) < 1 else f"{duration(abs(away))} ago"
    if away <= -1:
        words = f"in {duration(-away)}"
    iso = date.isoformat(timespec="seconds").replace("+00:00", "Z")
    return Markup('<time datetime="{0}" title="{0}">{1}</time>').format(iso, words)


@cache
def asset(name: str) -> str:
    """Return the path of a file of `static`, with a digest so that browsers can keep it."""
    content = files("jobwire.console.web").joinpath("static", name).read_bytes()
    return f"/static/{name}?v={hashlib.sha256(content).hexdigest()[:12]}"
