"""JSON values with their exact spelling, and their strict comparison."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ABSENT", "Absent", "Spelt", "equal", "members", "plain"]

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")


class Absent:
    """The type of `ABSENT`, which stands for a missing value."""

    def __repr__(self) -> str:
        return "absent"


ABSENT = Absent()


@dataclass(frozen=True, slots=True)
class Spelt:
    """A value and its exact text."""

    value: Any
    raw: str

    @property
    def kind(self) -> str:
        """Its JSON type. The spelling decides between integer and float."""
        match self.raw[:1]:
            case "{":
                return "object"
            case "[":
                return "array"
            case '"':
                return "string"
            case "t" | "f":
                return "boolean"
            case "n":
                return "null"
        return "float" if set(self.raw) & set(".eE") else "integer"


def plain(value: Any) -> Spelt:
    """Return a value with the text that `json.dumps` gives it."""
    return Spelt(value, json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def members(text: str) -> dict[str, Spelt]:
    """Return the members of a JSON object, each with its exact text.

    Raises:
        ValueError: The text is not a JSON object.
    """
    if not isinstance(json.loads(text), dict):
        raise ValueError("not a JSON object")
    by_name: dict[str, Spelt] = {}
    at = _skip(text, _skip(text, 0) + 1)
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)  # the colon
        value, end = _DECODER.raw_decode(text, at)
        by_name[name] = Spelt(value, text[at:end])
        at = _skip(text, end)
        if text[at] == ",":
            at = _skip(text, at + 1)
    return by_name


def _skip(text: str, at: int) -> int:
    space = _SPACE.match(text, at)
    assert space is not None  # the pattern also matches no characters
    return space.end()


def equal(one: Any, other: Any) -> bool:
    """Return whether two values are the same: 1 is neither 1.0 nor true, and -0.0 not 0.0."""
    if type(one) is not type(other):
        return False
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other) and (not isinstance(one, float) or repr(one) == repr(other))
