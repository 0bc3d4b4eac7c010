"""Values to push and to seed, with a large share of values that often cause trouble."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

__all__ = ["BOUNDARIES", "LONE", "SHARE", "deep", "fields", "texts", "values"]

SHARE = 0.4
"""Share of the values, at every depth, that come from `BOUNDARIES`."""

_DEEPEST = 98  # levels of an argument; the payload and `args` are two more levels [PAY-3]


def deep(levels: int) -> Any:
    """Return an array that is nested to this number of levels."""
    nested: list[Any] = []
    for _ in range(levels - 1):
        nested = [nested]
    return nested


BOUNDARIES: Sequence[Any] = (
    # Integers around what a double, and 64 bits, can hold. [PAY-5]
    2**53 + 1,
    -(2**53) - 1,
    2**53 - 1,
    2**53,
    2**63 - 1,
    2**63,
    -(2**63) - 1,
    2**64,
    10**30,
    # Floats whose spelling shows a reader that converts them. [PAY-6]
    1.0,
    -0.0,
    1e16,
    1e22,
    1e-7,
    5e-324,
    1.7976931348623157e308,
    0.1,
    # Text: empty, NUL, characters with and without JSON escapes, surrogate pairs. [PAY-2]
    "",
    "\x00",
    "a\x00b",
    "\u2028\u2029\x7f\x1f/<>&\"\\'",
    "\U0001f600\U0010ffff",
    "\ud7ff\ue000\ufffd\uffff",
    "e\u0301 \u00e9",
    "9007199254740993",
    "null",
    # Shapes: empty, deep, long names, similar names. [PAY-3] [PAY-8]
    [],
    {},
    [[]],
    {"": ""},
    deep(20),
    deep(_DEEPEST),
    {"k" * 300: 1},
    {"\x00": None},
    {"a": 1, "A": 2, "a ": 3, "\u00e9": 4, "e\u0301": 5},
    {"1": 1, "01": 2, "1.0": 3},
    {"class": "JobwireFail", "jid": "none", "queue": "none", "retry": False},
)
"""Values that some JSON libraries, languages or ports are known to change."""

LONE = ("\ud800", "\udfff", "a\ud800b")
"""Halves of surrogate pairs. UTF-8 cannot encode them, so a client may refuse them."""

_plain = st.one_of(
    st.integers(0, 9),
    st.sampled_from(("x", "a b", "Job", "\u00e9")),
    st.sampled_from((None, True, False)),
    st.floats(allow_nan=False, allow_infinity=False),
)
_NAMES = ("a", "b", "key", "\u00e9")
_boundary = st.sampled_from(BOUNDARIES)
_TENTHS = 10


@st.composite
def values(draw: st.DrawFn, depth: int = 2) -> Any:
    """Draw a JSON value. It shrinks to a plain one."""
    drawn = draw(st.sampled_from(range(_TENTHS)))
    if drawn >= _TENTHS * (1 - SHARE):
        return draw(_boundary)
    if depth and drawn == 4:
        return draw(st.lists(_inner(depth), max_size=3))
    if depth and drawn == 5:
        return draw(st.dictionaries(st.sampled_from(_NAMES), _inner(depth), max_size=2))
    return draw(_plain)


@st.composite
def _inner(draw: st.DrawFn, depth: int) -> Any:
    """Draw a part of a value, but not the deepest array, which must be the whole argument."""
    return draw(values(depth - 1).filter(lambda value: value != deep(_DEEPEST)))


@st.composite
def texts(draw: st.DrawFn) -> str:
    """Draw a message."""
    odd = [value for value in BOUNDARIES if isinstance(value, str) and value]
    if draw(st.sampled_from(range(_TENTHS))) >= _TENTHS * (1 - SHARE):
        return draw(st.sampled_from(odd))
    return draw(st.sampled_from(("oh no", "\u00e9", "a\nb")))


@st.composite
def fields(draw: st.DrawFn) -> dict[str, Any]:
    """Draw fields that no transition owns: unknown and reserved ones. [PAY-7] [PAY-13]"""
    if draw(st.booleans()):
        return {}
    shallow = values().filter(lambda value: value != deep(_DEEPEST))
    return {"x_trace": draw(shallow), "bid": "b-1", "cron": "x"}
