"""jobwire.protocol.arguments: Python values that may be job arguments."""

from __future__ import annotations

import collections
import decimal
import enum
import math
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from jobwire.errors import InvalidJob
from jobwire.protocol.arguments import MAX_DEPTH, check_args
from tests.rows import over


class Text(str):
    __slots__ = ()


class Colour(enum.IntEnum):
    RED = 1


def nested(levels: int) -> list[Any]:
    """Return `depth` nested lists."""
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    "args",
    [
        [],
        [None, True, False, 0, -1, 10**40, 1.5, -0.0, 1e300, "", "x", "\x00", "😀", [], {}],
        [{"a": {"b": [1, {"": None}]}}],
    ],
)
def test_json_values_pass_unchanged(args: list[Any]) -> None:
    """PUSH-5: null, booleans, numbers, strings, arrays, objects with string keys."""
    assert check_args(args) == args


def test_any_sequence_may_hold_them() -> None:
    """PAY-12: any sequence is written as an array."""
    assert check_args((1, "x")) == [1, "x"]
    assert check_args(range(3)) == [0, 1, 2]


REFUSED = [
    ([(1, 2)], "args[0]", "(1, 2) is tuple"),
    ([1, {"a": [b"x"]}], "args[1]['a'][0]", "b'x' is bytes"),
    ([date(2026, 11, 20)], "args[0]", "is date"),
    ([{"when": datetime(2026, 11, 20, tzinfo=UTC)}], "args[0]['when']", "is datetime"),
    ([decimal.Decimal("1.0")], "args[0]", "Decimal('1.0') is Decimal"),
    ([{1, 2}], "args[0]", "is set"),
    ([Text("x")], "args[0]", "'x' is Text"),
    ([Colour.RED], "args[0]", "is Colour"),
    ([collections.OrderedDict(a=1)], "args[0]", "is OrderedDict"),
    ([1j], "args[0]", "1j is complex"),
    ([{1: "x"}], "args[0]", "key 1 is int; keys must be str, or annotate the parameter of the job"),
    ([{"a": {None: 1}}], "args[0]['a']", "key None is NoneType"),
    ([{Text("a"): 1}], "args[0]", "key 'a' is Text"),
]


@over(("args", "path", "problem"), REFUSED, ids=[p for _, _, p in REFUSED])
def test_others_are_refused_by_path_and_value(args: list[Any], path: str, problem: str) -> None:
    """PUSH-5: the error names the value and its path."""
    with pytest.raises(InvalidJob) as caught:
        check_args(args)
    assert caught.value.rule == "PUSH-5"
    assert caught.value.field == path
    assert problem in caught.value.problem


@over("args", ["abc", b"abc", bytearray(b"abc"), 5, None, {"a": 1}, {1}, True])
def test_args_have_to_be_a_list(args: object) -> None:
    """PAY-12: a text is also a sequence, but never means one argument per letter."""
    with pytest.raises(InvalidJob, match=r"is not a list; write a single argument as") as caught:
        check_args(args)
    assert caught.value.rule == "PAY-12"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_lacks_are_refused(value: float) -> None:
    """PAY-4: NaN and infinities, at any depth, in either mode."""
    for strict in ("raise", "off"):
        with pytest.raises(InvalidJob, match=r"args\[0\]\['a'\]\[1\]: .* has no JSON form"):
            check_args([{"a": [1.0, value]}], strict=strict)


@pytest.mark.parametrize(
    ("args", "field"), [(["\ud800"], "args[0]"), ([{"\udfff": 1}], "args[0]"), (["a\udc00"], "")]
)
def test_lone_surrogates_are_refused(args: list[Any], field: str) -> None:
    """PAY-22: UTF-8 cannot encode them, so the text would not be a payload."""
    with pytest.raises(InvalidJob, match="lone surrogate") as caught:
        check_args(args)
    assert field in caught.value.field
    assert caught.value.rule == "PAY-22"


def test_depth_counts_payload_and_args() -> None:
    """PAY-3: with payload and args as the first two levels, 98 are left."""
    assert MAX_DEPTH == 100
    check_args([nested(98)])
    with pytest.raises(InvalidJob, match=r"nests deeper than 100 levels$"):
        check_args([nested(99)])


def test_depth_counts_objects_too() -> None:
    """PAY-3: an array in an object is two levels."""
    check_args([{"a": nested(97)}])
    with pytest.raises(InvalidJob) as caught:
        check_args([{"a": nested(98)}])
    assert caught.value.rule == "PAY-3"


def test_a_list_that_holds_itself_is_refused() -> None:
    """PAY-3: the error is not a RecursionError."""
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(InvalidJob) as caught:
        check_args(endless)
    assert caught.value.rule == "PAY-3"
    with pytest.raises(InvalidJob) as caught:
        check_args(endless, strict="off")
    assert caught.value.rule == "PUSH-5"


def test_off_converts_what_has_an_obvious_form() -> None:
    when = datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert check_args([when, (1,), {2: "x"}, Colour.RED], strict="off") == [
        "2026-11-20T12:00:00Z",
        [1],
        {"2": "x"},
        1,
    ]


def test_off_does_not_change_an_instant() -> None:
    """An offset with seconds has no place in the text."""
    odd = timezone(timedelta(seconds=-2670))
    assert check_args([[datetime(1971, 5, 1, tzinfo=odd)]], strict="off") == [
        ["1971-05-01T00:44:30Z"]
    ]
    with pytest.raises(InvalidJob, match="offset with seconds"):
        check_args([{datetime(1971, 5, 1, tzinfo=odd): 1}], strict="off")


def test_off_refuses_what_has_none() -> None:
    with pytest.raises(InvalidJob) as caught:
        check_args([object()], strict="off")
    assert caught.value.rule == "PUSH-5"


def test_long_values_are_shortened_in_errors() -> None:
    with pytest.raises(InvalidJob) as caught:
        check_args([frozenset({"x" * 10_000})])
    assert len(str(caught.value)) < 300
