"""The jobs to push: arguments that cause trouble in some languages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["POOL", "PoolJob", "text_of"]


@dataclass(frozen=True, slots=True)
class PoolJob:
    """One job to push.

    Attributes:
        name: Name in reports.
        args: Arguments of the job.
        later: True if the job is scheduled, False if it is due at once.
    """

    name: str
    args: Sequence[Any]
    later: bool = False


def _nested(depth: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


POOL = (
    PoolJob("no arguments", []),
    PoolJob("null and booleans", [None, True, False]),
    PoolJob("small integers", [0, 1, -1, 2147483648]),
    PoolJob("integers of 64 bits", [2**53 + 1, 2**63 - 1, -(2**63)]),
    PoolJob("integers above 64 bits", [2**64, 10**30, -(10**30)]),
    PoolJob("floats", [0.1, -1.5, 1e-7, 1.7976931348623157e308]),
    PoolJob("whole floats", [1.0, 1e16, -0.0]),
    PoolJob("empty things", ["", [], {}]),
    PoolJob("numbers in text", ["1", "1.0", "null", "1e3"]),
    PoolJob("an object", [{"a": 1, "b": {"c": [True, None]}}]),
    PoolJob("an array in an array", [[1, 2]]),
    PoolJob("keys like numbers", [{"0": "a", "1": "b"}]),
    PoolJob("text beyond ASCII", ["é", "☃", "日本語", "😀"]),
    PoolJob("odd characters", ["\u0001\u007f", "\u2028", "</script>", '"\\/\b\n']),
    PoolJob("NUL in text", ["a\u0000b"]),
    PoolJob("40 levels", _nested(39)),
    PoolJob("64 KiB of text", ["x" * 65536]),
    PoolJob("scheduled", [7, "later"], later=True),
    PoolJob("scheduled, a large integer", [2**53 + 1], later=True),
)


def text_of(value: object) -> str:
    """Return a text that is equal for equal JSON values of equal types, to the last digit."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
