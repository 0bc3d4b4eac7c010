"""Payloads of every shape survive encoding and decoding."""

from __future__ import annotations

import json
import re
import string
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobwire.errors import MalformedPayload
from jobwire.protocol.arguments import check_args
from jobwire.protocol.payload import can_append, decode, edit, encode

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(10**400), 10**400)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXT, VALUES, max_size=6)


def exact(value: Any) -> Any:
    """Return a value in which 1, 1.0 and True, and 0.0 and -0.0, compare as different."""
    if isinstance(value, list):
        return [exact(item) for item in value]
    if isinstance(value, dict):
        return {name: exact(item) for name, item in value.items()}
    return (type(value).__name__, repr(value))


@st.composite
def spelled(draw: st.DrawFn, value: Any) -> str:
    """Return JSON text of a value as another writer might spell it."""

    def space() -> str:
        return draw(st.sampled_from(["", "", "", " ", "\n", "\t\r "]))

    if isinstance(value, dict):
        pairs = [
            f"{space()}{draw(spelled(name))}{space()}:{space()}{draw(spelled(item))}{space()}"
            for name, item in value.items()
        ]
        return "{" + (",".join(pairs) or space()) + "}"
    if isinstance(value, list):
        items = [f"{space()}{draw(spelled(item))}{space()}" for item in value]
        return "[" + (",".join(items) or space()) + "]"
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=draw(st.booleans()))
        return text.replace("/", "\\/") if draw(st.booleans()) else text
    if isinstance(value, float) and draw(st.booleans()):
        return f"{value:.17e}"
    return json.dumps(value)


@given(value=OBJECTS)
def test_what_is_written_reads_back(value: dict[str, Any]) -> None:
    """PAY-5 and PAY-6: every JSON value survives exactly, in our reader and in another one."""
    text = encode(value)
    assert exact(decode(text, "q").fields) == exact(value)
    assert exact(json.loads(text)) == exact(value)


@given(data=st.data(), value=OBJECTS)
def test_a_field_is_appended_as_edit_does_it(data: st.DataObject, value: dict[str, Any]) -> None:
    """PAY-7: wherever `can_append` allows it, which is never with duplicate fields."""
    twice = data.draw(st.booleans())
    spelling = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    text = data.draw(st.just(spelling) | spelled(value)).encode()
    if twice and value:
        text = text[:-1] + b"," + spelling[1:].encode()
    fields = decode(text, "q").fields
    if "new" not in fields and can_append(text, fields):
        assert text[:-1] + b',"new":1}' == edit(text, {"new": 1})
        assert not twice


def test_where_a_field_can_be_appended() -> None:
    """PAY-7: the usual payload allows it."""
    usual = b'{"retry":true,"queue":"low","class":"A","args":[1,"x",[]],"jid":"j"}'
    assert can_append(usual, decode(usual, "q").fields)
    for text in (
        b"{}",
        b'{"a": 1}',
        b'{"a":1,"a":2}',
        b'{"a":{"b":1}}',
        b'{"a":"\\":"}',
        b'{"\\u0041":1}',
    ):
        assert not can_append(text, decode(text, "q").fields), text


@given(value=OBJECTS)
def test_text_is_compact(value: dict[str, Any]) -> None:
    """PAY-2: the text equals that of another compact writer, escapes included."""
    text = encode(value).decode()
    assert not any(ord(char) < 0x20 for char in text)
    if not any(isinstance(item, float) for item in leaves(value)):
        # The other writer uses the same short escapes for control characters, and no others.
        assert text == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [leaf for item in value.values() for leaf in leaves(item)]
    if isinstance(value, list):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_short_and_stay_floats(value: float) -> None:
    """PAY-6, PAY-33: the shortest text that reads back; whole floats stay floats."""
    text = encode(value).decode()
    assert repr(float(text)) == repr(value)
    assert any(mark in text for mark in ".e")
    digits = sum(
        char in string.digits for char in text.partition("e")[0].replace(".", "").strip("-0")
    )
    assert digits <= len(repr(value).partition("e")[0].replace(".", "").strip("-0"))


@given(data=st.data(), value=OBJECTS)
def test_any_spelling_is_read(data: st.DataObject, value: dict[str, Any]) -> None:
    """PAY-1: white space, escapes and spelling of numbers mean nothing."""
    text = data.draw(spelled(value))
    assert exact(decode(text.encode(), "q").fields) == exact(value)


@given(data=st.data(), value=OBJECTS, changes=OBJECTS, dropped=st.lists(TEXT, max_size=3))
def test_edit_keeps_the_text_of_what_it_does_not_touch(
    data: st.DataObject, value: dict[str, Any], changes: dict[str, Any], dropped: list[str]
) -> None:
    """PAY-7: every other field keeps its exact text, but for white space and escapes. PAY-20."""
    text = data.draw(spelled(value)).encode()
    drop = [name for name in value if data.draw(st.booleans())] + dropped
    after = edit(text, changes, drop=drop)
    before_raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    after_raw = msgspec.json.decode(after, type=dict[str, msgspec.Raw])
    kept = [name for name in value if name not in drop and name not in changes]
    for name in kept:
        assert bytes(after_raw[name]) == respelled(squeezed(bytes(before_raw[name])))
    assert [name for name in after_raw if name in kept] == kept  # and in the same order
    assert exact({name: decode(after, "q")[name] for name in changes}) == exact(changes)
    assert set(after_raw) == set(kept) | set(changes)


def respelled(text: bytes) -> bytes:
    """Return JSON text with its strings as writers spell them. [PAY-20] [PAY-21]"""
    return re.sub(
        rb'"(?:[^"\\]|\\.)*"',
        lambda found: json.dumps(json.loads(found[0]), ensure_ascii=False).encode(),
        text,
    )


def squeezed(text: bytes) -> bytes:
    """Return JSON text without the white space between its tokens."""
    kept = bytearray()
    in_string = escaped = False
    for byte in text:
        if in_string or byte not in b" \t\r\n":
            kept.append(byte)
        if byte == ord('"') and not escaped:
            in_string = not in_string
        escaped = in_string and byte == ord("\\") and not escaped
    return bytes(kept)


@given(value=OBJECTS, defaults=OBJECTS)
def test_defaults_fill_gaps_only(value: dict[str, Any], defaults: dict[str, Any]) -> None:
    """SCHED-6: missing fields are put in front, present ones stay."""
    after = decode(edit(encode(value), {}, defaults=defaults), "q").fields
    missing = {name: item for name, item in defaults.items() if name not in value}
    assert exact(after) == exact(missing | value)
    assert list(after) == [*missing, *value]


@given(value=OBJECTS)
def test_an_edit_of_nothing_changes_nothing(value: dict[str, Any]) -> None:
    """PAY-7: compact text stays unchanged."""
    assert edit(encode(value), {}) == encode(value)


@given(
    text=st.binary(max_size=60) | TEXT.map(str.encode) | OBJECTS.map(encode).map(lambda t: t[:-1])
)
def test_any_bytes_are_a_payload_or_malformed(text: bytes) -> None:
    """EXEC-3 and EXEC-4: there is no third result."""
    try:
        is_object = isinstance(json.loads(text.decode()), dict) and b"NaN" not in text
    except ValueError:
        is_object = False
    if is_object:
        assert decode(text, "q").text == text
    else:
        with pytest.raises(MalformedPayload):
            decode(text, "q")


@given(args=st.lists(VALUES, max_size=5))
def test_json_values_are_accepted_as_arguments(args: list[Any]) -> None:
    """PUSH-5: and are returned unchanged."""
    checked = check_args(args)
    assert exact(decode(encode({"args": checked}), "q").args) == exact(args)
