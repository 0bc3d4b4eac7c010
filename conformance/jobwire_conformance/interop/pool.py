"""What is pushed: arguments that some language or other has trouble with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["POOL", "Item", "text_of"]


@dataclass(frozen=True, slots=True)
class Item:
    """One job.

    Attributes:
        name: In reports.
        args: Of the job.
        later: Whether it is scheduled instead of pushed at once.
    """

    name: str
    args: Sequence[Any]
    later: bool = False


def _nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


POOL = (
    Item("no arguments", []),
    Item("null and booleans", [None, True, False]),
    Item("small integers", [0, 1, -1, 2147483648]),
    Item("integers of 64 bits", [2**53 + 1, 2**63 - 1, -(2**63)]),
    Item("integers above 64 bits", [2**64, 10**30, -(10**30)]),
    Item("floats", [0.1, -1.5, 1e-7, 1.7976931348623157e308]),
    Item("whole floats", [1.0, 1e16, -0.0]),
    Item("empty things", ["", [], {}]),
    Item("numbers in text", ["1", "1.0", "null", "1e3"]),
    Item("an object", [{"a": 1, "b": {"c": [True, None]}}]),
    Item("an array in an array", [[1, 2]]),
    Item("keys like numbers", [{"0": "a", "1": "b"}]),
    Item("text beyond ASCII", ["é", "☃", "日本語", "😀"]),
    Item("odd characters", ["\u0001\u007f", "\u2028", "</script>", '"\\/\b\n']),
    Item("NUL in text", ["a\u0000b"]),
    Item("40 levels", _nested(39)),
    Item("64 KiB of text", ["x" * 65536]),
    Item("scheduled", [7, "later"], later=True),
    Item("scheduled, a large integer", [2**53 + 1], later=True),
)


def text_of(value: object) -> str:
    """Return a text that is the same for the same JSON value, to the type and last digit."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
