"""JSON for committed files: small, with one line for each value that can change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["dump"]


def dump(data: Mapping[str, Any]) -> bytes:
    """Return an object as JSON in UTF-8, with one line for each member.

    A member that holds arrays or objects takes one line for each of its items. An item is never
    divided over several lines.
    """
    return ("{\n" + ",\n".join(_member(*item) for item in data.items()) + "\n}\n").encode()


def _member(name: str, value: Any) -> str:
    parts = [*value.values()] if isinstance(value, Mapping) else value
    if not isinstance(parts, list) or not any(isinstance(part, list | Mapping) for part in parts):
        return f" {_text(name)}: {_text(value)}"
    start, end = "{}" if isinstance(value, Mapping) else "[]"
    return f" {_text(name)}: {start}\n" + ",\n".join(_items(value)) + f"\n {end}"


def _items(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (f"  {_text(name)}: {_text(item)}" for name, item in value.items())
    else:
        yield from (f"  {_text(item)}" for item in value)


def _text(value: Any) -> str:
    # A payload may hold half a surrogate pair, which UTF-8 cannot encode.
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()
