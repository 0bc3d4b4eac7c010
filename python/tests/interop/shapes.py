"""Job arguments of every JSON shape, the same ones for the same seed."""

from __future__ import annotations

import json
import math
import os
import random
import struct
from collections.abc import Callable, Mapping
from typing import Any

SEED = int(os.environ.get("JOBWIRE_SEED", "20261120"))
"""Seed of all generated tests; set JOBWIRE_SEED to test other values."""

DEEPEST = 98  # levels of one argument; `args` and the payload around it make it 100 [PAY-3]

INTEGERS: list[Any] = [
    *(0, 1, -1, 2**31, -(2**31) - 1, 2**53, 2**53 + 1, 130775545883395173),
    *(2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 2**64 - 1, 2**64, 10**299, -(10**300) + 1),
]
FLOATS: list[Any] = [
    *(0.0, -0.0, 1.0, -2.0, 0.1, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308),
    *(0.0011285007931292057, 1673626980.0058892, 0.30000000000000004, 123456789.12345679),
    *(1e15, 1e16, 1e17, 1e20, 1e22, 1e23, 1e-4, 1e-5, 1e-6, 1e-7, -1.5e-9, 9007199254740993.0),
]
TEXTS: list[Any] = [
    *("", " ", "a", "\0", "a\0b", "\x01\x1f", "\x7f", "\x80\x9f", "\u2028\u2029", "\ufeff"),
    *("\\ / \" ' \b\f\n\r\t", "\\u0041", "</script>", "<!--", "é", "e\u0301", "日本", "עברית"),
    *(
        "\U0001f600",
        "👩‍👩‍👧‍👦",
        "\uffff",
        "\U0010ffff",
        "\ue000",
        "null",
        "1e400",
        "NaN",
        "[]",
        "{",
    ),
    *("%s %d", "#{1 + 1}", "x" * 10_000, "ß\U0001f4a9" * 20_000),
]
CONTAINERS: list[Any] = [
    *([], {}, [[]], [{}], {"": []}, {"": {"": {}}}, [[], {}, [[], {}]], {"a": {"b": [None]}}),
    {"\0": 1, "\U0001f600": 2, "a b": 3, "\\": 4, '"': 5, "\n": 6, "/": 7, "\u2028": 8},
    # Names with a meaning to one of the JSON libraries, or to Active Job.
    {"json_class": "String", "__proto__": 1, "$ref": "#", "_aj_symbol_keys": [], "^t": 1},
    {"class": "EchoJob", "args": [1], "jid": "x", "queue": "y", "retry_count": 3},
    [[[1, [2.0, [None, [True, [False, ["x", [{}]]]]]]]]],
]
ALPHABETS = (
    "abc XYZ 0123",
    "\0\x01\b\t\n\f\r\x1f\x7f\"\\/'",
    "éßñçø\u00a0\u0301\u200d\u2028\u2029\ufeff",
    "日本語한국어עבריתعربي",
    "\U0001f600\U0001f468\u200d\U0001f469\U0010ffff\U00010000",
)


def exact(value: Any) -> str:
    """Return text that distinguishes values equal by ==: 1 and 1.0 and True, 0.0 and -0.0."""
    return json.dumps(value)


def nested(depth: int, *, objects: bool = False) -> Any:
    """Return an array, or alternating arrays and objects, of this many levels."""
    value: Any = []
    for level in range(depth - 1):
        value = {"k": value} if objects and level % 2 else [value]
    return value


def spelled_alike(number: float) -> bool:
    """True if every generation of Ruby's json spells this float as we do.

    Beyond this range floats have an exponent, and styles differ: 1.0e+22, 1e+22, 1e22.
    Also, from 16 digits on, json 3.1 does not always write the shortest text: 1 in 1,000 differs.
    """
    digits = repr(number).replace(".", "").lstrip("-0")
    return number == 0 or (1e-4 <= abs(number) < 1e15 and len(digits) <= 15)


class Shapes:
    """A source of values; two of the same seed give the same ones.

    Args:
        seed: Start of the sequence.
        floats: Which floats to use; all of them by default.
    """

    def __init__(self, seed: int = SEED, *, floats: Callable[[float], bool] = math.isfinite):
        self._rng = random.Random(seed)
        self._floats = floats

    def arguments(self, count: int) -> list[list[Any]]:
        """Return argument lists of this many jobs, those known to be hard first."""
        lists = [[], *([value] for value in self.edges())][:count]
        while len(lists) < count:
            lists.append([self.value() for _ in range(self._rng.randrange(5))])
        return lists

    def edges(self) -> list[Any]:
        """Return the values that are known to be hard."""
        floats = [number for number in FLOATS if self._floats(number)]
        deep = [nested(depth, objects=each) for depth in (50, DEEPEST) for each in (False, True)]
        return [None, True, False, *INTEGERS, *floats, *TEXTS, *CONTAINERS, *deep]

    def value(self, depth: int = 5) -> Any:
        """Return any value of at most this depth."""
        kinds: list[Callable[[], Any]] = [
            lambda: self._rng.choice([None, True, False]),
            self.integer,
            self.number,
            self.text,
        ]
        if depth:
            kinds += [
                lambda: [self.value(depth - 1) for _ in range(self._rng.randrange(5))],
                lambda: {self.text(): self.value(depth - 1) for _ in range(self._rng.randrange(5))},
            ]
        return self._rng.choice(kinds)()

    def integer(self) -> int:
        """Return an integer of up to 300 digits, small ones as likely as large ones."""
        digits = self._rng.choice([1, 5, 10, 16, 17, 19, 20, 40, 300])
        return self._rng.randrange(-(10**digits), 10**digits)

    def number(self) -> float:
        """Return a float, of any magnitude or of an everyday one."""
        while True:
            any_bits: float = struct.unpack("<d", self._rng.randbytes(8))[0]
            everyday = self._rng.uniform(-1, 1) * 10 ** self._rng.randrange(-3, 15)
            number: float = self._rng.choice(
                [any_bits, everyday, round(everyday, 2), everyday // 1]
            )
            if math.isfinite(number) and self._floats(number):
                return number

    def text(self) -> str:
        """Return a text of up to 12 characters, of one script or of many."""
        letters = self._rng.choice([*ALPHABETS, "".join(ALPHABETS)])
        return "".join(self._rng.choices(letters, k=self._rng.randrange(12)))

    def fields(self, count: int) -> dict[str, Any]:
        """Return payload fields that no reader knows, with values of every shape."""
        names = [f"x_{number}" for number in range(count)]
        return {name: self.value() for name in names} | {
            "x_big": 10**299 + 7,
            "x_empty": [[], {}, [{}], {"": []}],
            'x "\\/\0\u2028\U0001f600': {'"': "\\/\0\u2028\U0001f600"},
            "bid": "batch",
            "locale": None,
            "unique_for": 3600,
            "jw_any": {"nested": [1, 2.5]},
        }


def differences(sent: Mapping[str, Any], ran: Mapping[str, Any]) -> list[str]:
    """Return differences between sent and run arguments, a line for each of the first three."""
    lines = [
        f"seed {SEED}, {key}: sent {exact(value)[:500]}, got "
        + (exact(ran[key])[:500] if key in ran else "nothing")
        for key, value in sent.items()
        if key not in ran or exact(ran[key]) != exact(value)
    ]
    lines += [f"seed {SEED}, {key}: never sent" for key in ran if key not in sent]
    return lines[:3]
