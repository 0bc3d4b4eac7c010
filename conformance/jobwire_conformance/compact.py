"""JSON for files that are committed: small, and a line for each thing that can change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["dump"]


def dump(found: Mapping[str, Any]) -> bytes:
    """Return an object as JSON in UTF-8: a line for each member, and for each item of these.

    A member that holds arrays or objects is spread over several lines, one for each item. All
    below an item stays on its line.
    """
    return ("{\n" + ",\n".join(_member(*item) for item in found.items()) + "\n}\n").encode()


def _member(name: str, value: Any) -> str:
    inner = [*value.values()] if isinstance(value, Mapping) else value
    if not isinstance(inner, list) or not any(isinstance(each, list | Mapping) for each in inner):
        return f" {_text(name)}: {_text(value)}"
    start, end = "{}" if isinstance(value, Mapping) else "[]"
    return f" {_text(name)}: {start}\n" + ",\n".join(_items(value)) + f"\n {end}"


def _items(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from (f"  {_text(name)}: {_text(item)}" for name, item in value.items())
    else:
        yield from (f"  {_text(item)}" for item in value)


def _text(value: Any) -> str:
    # Half a surrogate pair, which a payload may hold, cannot be written in UTF-8.
    text = json.dumps(value, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode()
